#include <trireme/records/remote/remote_files.h>

#include <fmt/format.h>
#include <trireme/base/error.h>
#include <trireme/base/hash.h>
#include <trireme/base/log.h>
#include <trireme/base/units.h>
#include <trireme/records/damage.h>
#include <trireme/records/index.h>
#include <trireme/records/remote/address.h>
#include <atomic>
#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

namespace trireme::records {
namespace {

constexpr int kMostTries = 1000;
// A reader that needs a file so soon after it could not be fetched ahead does not try again.
constexpr Milliseconds kRecent{5'000};

struct RemoteFile {
  std::string address, shown, name;
  int64_t bytes = -1, stamp = 0;  // Those that are expected.
  bool ask = false;
  bool was_fetched = false;
  KnownFile known;          // As it was opened last,
  int64_t known_stamp = 0;  // with these bytes; 0: it was not opened yet.
  int64_t announced = 0;
  bool is_queued = false;
  std::optional<Damage> failure;  // One that stays: the file is not asked for again.
  // One that may pass, of all tries to fetch it ahead; until a time.
  std::optional<Damage> recent;
  Deadline recent_until = Deadline::after(Milliseconds(0));
};

void check_download_options(const DownloadOptions& options) {
  const auto refuse = [](std::string_view what, std::string_view remedy) {
    throw Error(ErrorCode::invalid_argument, "data", what, remedy);
  };
  if (options.timeout < Milliseconds(1000))
    refuse(fmt::format("data.download_timeout is {}, but must be at least 1s",
                       format_duration(options.timeout)),
           "30s");
  if (options.tries < 1 || options.tries > kMostTries)
    refuse(
        fmt::format("data.download_tries is {}, but must lie in 1..{}", options.tries, kMostTries),
        "5");
}

}  // namespace

struct RemoteFiles::Impl {
  Impl(std::vector<std::string> addresses, DownloadOptions given)
      : options(std::move(given)),
        folder(options.folder.empty() ? index_folder({}) / "downloads" : options.folder) {
    std::string all;
    for (std::string& address : addresses) {
      const std::string file = address_of_file(address);
      all += file + "\n";
      const std::string name = sha256_hex(file).substr(0, 32);
      numbers.emplace(name, files.size());
      files.push_back({.address = std::move(address), .shown = shown_address(file), .name = name});
    }
    key = digest_of(all);
  }

  FetchWish wish_for(size_t number, FetchNeed need) {
    const std::lock_guard lock(mutex);
    const RemoteFile& file = files[number];
    if (file.failure) throw *file.failure;
    throw_recent(file, need);
    return {.address = file.address,
            .shown = file.shown,
            .name = file.name,
            .need = need,
            .bytes = file.bytes,
            .stamp = file.stamp,
            .ask = [this, number] { return asks(number); },
            .keep = [this](const std::string& name) { return is_announced(name); },
            .was_left =
                [this, number, need] {
                  const std::lock_guard again(mutex);
                  throw_recent(files[number], need);
                },
            .may_use_old = [this] { return may_use_old(); },
            .is_renewed =
                [this] {
                  const std::lock_guard again(mutex);
                  has_renewed = true;
                }};
  }

  static void throw_recent(const RemoteFile& file, FetchNeed need) {
    if (need == FetchNeed::now && file.recent && !file.recent_until.expired()) throw *file.recent;
  }

  bool asks(size_t number) {
    const std::lock_guard lock(mutex);
    return files[number].ask && !is_unreachable;
  }

  // Old files would not fit one that has just been renewed.
  bool may_use_old() {
    const std::lock_guard lock(mutex);
    if (has_renewed) return false;
    if (!std::exchange(is_unreachable, true) && files.size() > 1)
      log_warning(
          "the server cannot be reached, so it is not asked for changes of the other files of "
          "this data set");
    return true;
  }

  // The file as it was opened before, if it is still there.
  std::optional<DataFile> open_again(size_t number) {
    KnownFile known;
    int64_t stamp = 0;
    {
      const std::lock_guard lock(mutex);
      const RemoteFile& file = files[number];
      stamp = file.known_stamp, known = file.known;
      if (file.ask || file.failure || stamp == 0 || (file.stamp != 0 && file.stamp != stamp))
        return std::nullopt;
    }
    Descriptor opened = folder.reopen(files[number].name, known);
    if (!opened) return std::nullopt;
    return DataFile(std::move(opened), stamp);
  }

  // The server may have another version of all files by now.
  void refuse_beside_old_files(size_t number) {
    {
      const std::lock_guard lock(mutex);
      if (!is_unreachable || folder.has(files[number].name)) return;
    }
    throw Damage(
        "it is not in the folder of downloads, and the server could not be reached for "
        "another file of the data set, whose earlier copy is used",
        "another start when the server answers", ErrorCode::io);
  }

  bool is_announced(const std::string& name) {
    const std::lock_guard lock(mutex);
    const auto found = numbers.find(name);
    return found != numbers.end() && files[found->second].announced > 0;
  }

  DataFile open(size_t number, FetchNeed need) {
    if (auto again = open_again(number)) return std::move(*again);
    const FetchWish wish = wish_for(number, need);
    if (need == FetchNeed::now) tell_of_second_download(number);
    if (need == FetchNeed::stays) refuse_beside_old_files(number);
    try {
      std::optional<FetchedFile> fetched = fetch(folder, options, wish);
      if (!fetched) throw Error(ErrorCode::internal, "data", "a file was not fetched");
      const std::lock_guard lock(mutex);
      RemoteFile& file = files[number];
      file.ask = false, file.was_fetched = true;
      file.known = known_file(fetched->descriptor), file.known_stamp = stamp_of(fetched->facts);
      return DataFile(std::move(fetched->descriptor), file.known_stamp);
    } catch (const Damage& damage) {
      const std::lock_guard lock(mutex);
      if (damage.code == ErrorCode::corrupt || damage.code == ErrorCode::not_found)
        files[number].failure = damage;
      throw;
    }
  }

  void tell_of_second_download(size_t number) {
    {
      const std::lock_guard lock(mutex);
      if (was_told || !files[number].was_fetched || folder.has(files[number].name)) return;
      was_told = true;
    }
    log_warning(
        "{} is fetched again, because {} may hold {} (data.download_bytes), and not all "
        "files that this run needs",
        files[number].shown, folder.path().string(), format_bytes(folder.limit(options.bytes)));
  }

  // Fetches announced files until it is asked to stop.
  void work(const std::stop_token& stop) {
    while (true) {
      size_t number = 0;
      {
        std::unique_lock lock(mutex);
        if (!changed.wait(lock, stop, [this] { return !queue.empty() && !is_full; })) return;
        number = queue.front();
        queue.pop_front();
        files[number].is_queued = false;
        if (files[number].announced == 0 || folder.has(files[number].name)) continue;
      }
      try {
        FetchWish wish = wish_for(number, FetchNeed::ahead);
        wish.stop = stop;
        const auto fetched = fetch(folder, options, wish);
        const std::lock_guard lock(mutex);
        if (fetched) {
          files[number].ask = false;
          files[number].was_fetched = true;
          continue;
        }
        // There is no room now, or another process is at it.
        if (files[number].is_queued || folder.has(files[number].name)) continue;
        files[number].is_queued = is_full = true;
        queue.push_front(number);
      } catch (const Damage& damage) {
        // The reader that needs the file will meet the same and name it.
        log_debug("{} is not fetched ahead: {}", files[number].shown, damage.what);
        const std::lock_guard lock(mutex);
        files[number].recent = damage;
        files[number].recent_until = Deadline::after(kRecent);
      } catch (const std::exception& error) {
        log_debug("{} is not fetched ahead: {}", files[number].shown, brief(error));
      }
    }
  }

  const DownloadOptions options;
  const DownloadFolder folder;
  std::string key;
  std::map<std::string, size_t> numbers;  // By the names in the folder.
  std::mutex mutex;                       // Guards everything below, and the files.
  std::vector<RemoteFile> files;
  std::condition_variable_any changed;
  std::deque<size_t> queue;
  bool is_full = false;  // The first one of the queue waits until something changes.
  bool was_told = false;
  // The server could not be asked for changes of a file. To try it again for each of many files
  // would take as long each time.
  bool is_unreachable = false;
  bool has_renewed = false;  // The server has sent a file since it is asked for changes.
  std::jthread thread;       // The last member: it ends before those that it uses.
};

RemoteFiles::RemoteFiles(std::vector<std::string> addresses, DownloadOptions options) {
  for (const std::string& address : addresses) check_address(address);
  check_download_options(options);
  impl_ = std::make_unique<Impl>(std::move(addresses), std::move(options));
}
RemoteFiles::~RemoteFiles() = default;

const std::string& RemoteFiles::key() const { return impl_->key; }
const DownloadOptions& RemoteFiles::options() const { return impl_->options; }
const std::string& RemoteFiles::address(size_t file) const { return impl_->files[file].address; }
bool RemoteFiles::is_here(size_t file) const { return impl_->folder.has(impl_->files[file].name); }
DataFile RemoteFiles::open(size_t file) const { return impl_->open(file, FetchNeed::now); }
DataFile RemoteFiles::open_to_stay(size_t file) const {
  return impl_->open(file, FetchNeed::stays);
}

void RemoteFiles::ask_for_changes() {
  const std::lock_guard lock(impl_->mutex);
  for (RemoteFile& file : impl_->files) file.ask = true;
  impl_->is_unreachable = impl_->has_renewed = false;
}

void RemoteFiles::expect(std::span<const FileIdentity> identities) {
  const std::lock_guard lock(impl_->mutex);
  for (size_t i = 0; i < identities.size(); ++i)
    impl_->files[i].bytes = identities[i].bytes, impl_->files[i].stamp = identities[i].mtime_ns;
}

void RemoteFiles::announce(std::span<const size_t> files) const {
  {
    const std::lock_guard lock(impl_->mutex);
    for (const size_t number : files) {
      RemoteFile& file = impl_->files[number];
      if (file.announced++ > 0 || file.is_queued || file.failure) continue;
      file.is_queued = true;
      impl_->queue.push_back(number);
      impl_->is_full = false;
    }
    if (!impl_->queue.empty() && !impl_->thread.joinable())
      impl_->thread = std::jthread([this](const std::stop_token& stop) { impl_->work(stop); });
  }
  impl_->changed.notify_one();
}

bool RemoteFiles::release(size_t file) const {
  {
    const std::lock_guard lock(impl_->mutex);
    int64_t& announced = impl_->files[file].announced;
    if (announced == 0 || --announced > 0) return false;
    // Announced anew, the file comes behind those that are needed earlier.
    if (std::exchange(impl_->files[file].is_queued, false)) std::erase(impl_->queue, file);
    impl_->is_full = false;
  }
  impl_->changed.notify_one();
  return true;
}

}  // namespace trireme::records
