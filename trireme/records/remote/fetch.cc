#include <trireme/records/remote/fetch.h>

#include <fmt/format.h>
#include <trireme/base/error.h>
#include <trireme/base/log.h>
#include <trireme/base/units.h>
#include <trireme/net/download.h>
#include <trireme/records/damage.h>
#include <unistd.h>
#include <algorithm>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <condition_variable>
#include <mutex>
#include <system_error>

namespace trireme::records {
namespace {

constexpr Milliseconds kFirstPause{250}, kLongestPause{8'000}, kLongestWish{60'000};
constexpr Milliseconds kLookAgain{20};
// Less than that is no progress.
constexpr int64_t kLeastProgress = 4096;
// The room that is taken at a time for a file whose size the server does not say.
constexpr int64_t kRoomAtATime = 16 << 20;

// There is no room for a file that is fetched ahead.
struct NoRoom {};

// Returns false if it was asked to stop.
bool pause(Milliseconds wait, const std::stop_token& stop) {
  std::mutex mutex;
  std::condition_variable_any never;
  std::unique_lock lock(mutex);
  never.wait_for(lock, stop, wait, [] { return false; });
  return !stop.stop_requested();
}

Damage changed_file(std::string_view what) {
  return Damage(fmt::format("the file on the server is not the one that was indexed: {}", what),
                "trireme data index, if the change was meant");
}

class Fetch {
 public:
  Fetch(const DownloadFolder& folder, const DownloadOptions& options, const FetchWish& wish)
      : folder_(folder), options_(options), wish_(wish) {}

  std::optional<FetchedFile> run() {
    for (;;) {
      if (auto there = whole_file()) return there;
      if (wish_.stop.stop_requested()) return std::nullopt;
      auto part = folder_.begin(wish_.name);
      if (!part) {
        if (wish_.need == FetchNeed::ahead || !wait_for_other()) return std::nullopt;
        continue;
      }
      // It may have become whole before the lock was there.
      if (auto there = whole_file()) {
        folder_.drop(std::move(*part), wish_.name);
        return there;
      }
      if (patience_ && wish_.was_left) wish_.was_left();
      return fetch_part(std::move(*part));
    }
  }

 private:
  bool fits(const FetchedFacts& facts) const {
    return (wish_.bytes < 0 || facts.bytes == wish_.bytes) &&
           (wish_.stamp == 0 || stamp_of(facts) == wish_.stamp);
  }

  bool asks() const { return wish_.ask && wish_.ask(); }

  std::optional<FetchedFile> whole_file() {
    if (asks()) return std::nullopt;
    auto file = folder_.open(wish_.name);
    if (file && !fits(file->facts)) return std::nullopt;
    return file;
  }

  // Another process, or another thread, fetches the file. It has deadlines of its own, but may be
  // stopped.
  bool wait_for_other() {
    const int64_t bytes = folder_.progress(wish_.name);
    if (!patience_ || bytes != seen_) {
      seen_ = bytes;
      patience_ = Deadline::after((options_.timeout + kLongestWish) * (options_.tries + 1));
    }
    if (patience_->expired())
      throw Damage(fmt::format("another process of this host fetches it, and has brought nothing "
                               "for {}",
                               format_duration(patience_->allowed())),
                   "end that process", ErrorCode::timeout);
    return pause(kLookAgain, wish_.stop);
  }

  std::optional<FetchedFile> fetch_part(PartialFile part) {
    std::optional<FetchedFile> old;
    const bool must_ask = asks();
    if (must_ask) old = folder_.open(wish_.name);
    if (wish_.need == FetchNeed::ahead && wish_.bytes >= 0) {  // Before the server is asked.
      room_ = part.bytes;
      provide(part, wish_.bytes - part.bytes);
    }
    int64_t furthest = part.bytes;
    for (int fruitless = 0;;) {
      if (!must_ask && is_whole_as_wanted(part)) return finish(std::move(part));
      const net::DownloadReply reply = ask_server(part, old);
      switch (reply.end) {
        case net::DownloadEnd::done:
          if (must_ask && wish_.is_renewed) wish_.is_renewed();
          return finish(std::move(part));
        case net::DownloadEnd::same: folder_.drop(std::move(part), wish_.name); return old;
        case net::DownloadEnd::stopped: return std::nullopt;
        case net::DownloadEnd::not_there: throw refused_by_server(reply);
        case net::DownloadEnd::failed: break;
      }
      if (reply.has_no_rest) folder_.restart(part, wish_.name, {});
      fruitless = part.bytes >= furthest + kLeastProgress ? 0 : fruitless + 1;
      furthest = std::max(furthest, part.bytes);
      if (fruitless >= options_.tries && may_use_old(old)) {
        log_warning("{}: {}; the file that was fetched earlier is used", wish_.shown,
                    reply.failure);
        folder_.drop(std::move(part), wish_.name);
        return old;
      }
      if (fruitless >= options_.tries)
        throw Damage(fmt::format("it cannot be fetched in {} tries: {}", fruitless, reply.failure),
                     "check the network and the server, or set data.download_timeout and "
                     "data.download_tries",
                     ErrorCode::io);
      log_warning("{}: {}; another try follows", wish_.shown, reply.failure);
      if (!pause(pause_before(fruitless, reply), wish_.stop)) return std::nullopt;
    }
  }

  // A process that was killed may have left all bytes of a version that is not the indexed one.
  // The server may have that one.
  bool is_whole_as_wanted(PartialFile& part) const {
    if (part.facts.bytes < 0 || part.bytes != part.facts.bytes) return false;
    folder_.note_digest(part);
    if (fits(part.facts)) return true;
    folder_.restart(part, wish_.name, {});
    return false;
  }

  // No index says which version of the file is the right one.
  bool may_use_old(const std::optional<FetchedFile>& old) const {
    return wish_.need == FetchNeed::stays && old && fits(old->facts) &&
           (!wish_.may_use_old || wish_.may_use_old());
  }

  static Milliseconds pause_before(int fruitless, const net::DownloadReply& reply) {
    const Milliseconds own = std::min(kLongestPause, kFirstPause * (1 << std::min(fruitless, 6)));
    return std::max(own, std::min(reply.retry_after.value_or(own), kLongestWish));
  }

  Damage refused_by_server(const net::DownloadReply& reply) const {
    const bool is_missing = reply.head.status == 404 || reply.head.status == 410;
    return Damage(fmt::format("it cannot be fetched: {}", reply.failure),
                  is_missing ? "correct the address, or put the file there"
                             : "an address that can be read from this host",
                  is_missing ? ErrorCode::not_found : ErrorCode::io);
  }

  net::DownloadReply ask_server(PartialFile& part, const std::optional<FetchedFile>& old) {
    // The rest might be of another version, or there is no rest.
    if (part.facts.version.empty() || part.bytes == part.facts.bytes) part.bytes = 0;
    net::DownloadRequest request{.url = wish_.address,
                                 .offset = part.bytes,
                                 .version = part.facts.version,
                                 .size = part.facts.bytes,
                                 .timeout = options_.timeout,
                                 .stop = wish_.stop};
    if (old && fits(old->facts))
      request.offset = 0, request.version = old->facts.version, request.unless_same = true;
    request.begin = [&](const net::DownloadHead& head) { begin(part, head); };
    request.take = [&](std::span<const std::byte> bytes) { take(part, bytes); };
    return net::download(request);
  }

  void begin(PartialFile& part, const net::DownloadHead& head) {
    if (wish_.bytes >= 0 && head.size >= 0 && head.size != wish_.bytes)
      throw changed_file(fmt::format("it has {} bytes, but had {}", head.size, wish_.bytes));
    if (head.offset == 0)
      folder_.restart(part, wish_.name,
                      {.bytes = head.size, .version = head.version, .digest = {}});
    room_ = part.bytes;
    if (head.size >= 0) provide(part, head.size - part.bytes);
  }

  void take(PartialFile& part, std::span<const std::byte> bytes) {
    const auto count = static_cast<int64_t>(bytes.size());
    if (part.bytes + count > room_) provide(part, std::max(kRoomAtATime, count));
    while (!bytes.empty()) {
      const ssize_t written =
          ::pwrite(part.descriptor.get(), bytes.data(), bytes.size(), part.bytes);
      if (written < 0 && errno == EINTR) continue;
      if (written < 0)
        throw Damage(fmt::format("cannot write it into {}: {}", folder_.path().string(),
                                 std::generic_category().message(errno)),
                     "more disk space, or another data.download_dir", ErrorCode::io);
      part.bytes += written;
      bytes = bytes.subspan(static_cast<size_t>(written));
    }
  }

  // Takes room for `more` bytes.
  void provide(PartialFile& part, int64_t more) {
    const int64_t limit = folder_.limit(options_.bytes);
    if (part.bytes + more > limit && (part.facts.bytes >= 0 || part.bytes > limit))
      throw Damage(fmt::format("it has {}, but the folder of downloads may hold {} "
                               "(data.download_bytes)",
                               format_bytes(part.bytes + more), format_bytes(limit)),
                   "a larger data.download_bytes, or smaller files", ErrorCode::invalid_argument);
    room_ = part.bytes + more;
    if (folder_.make_room(part, more, options_.bytes, wish_.keep)) return;
    if (wish_.need == FetchNeed::ahead) throw NoRoom{};
    if (folder_.make_room(part, more, options_.bytes, {})) return;
    if (wish_.need == FetchNeed::stays)
      throw Damage(fmt::format("all files of this format stay open, and the folder of downloads "
                               "may hold {} (data.download_bytes)",
                               format_bytes(limit)),
                   "a data.download_bytes that holds all of them", ErrorCode::invalid_argument);
    static std::atomic<bool> was_told{false};
    if (!was_told.exchange(true))
      log_warning(
          "the files in use are larger than data.download_bytes, {}, so {} grows beyond it",
          format_bytes(limit), folder_.path().string());
    folder_.reserve(part, more);
  }

  FetchedFile finish(PartialFile part) {
    FetchedFile file = folder_.finish(std::move(part), wish_.name);
    if (wish_.bytes >= 0 && file.facts.bytes != wish_.bytes)
      throw changed_file(
          fmt::format("it has {} bytes, but had {}", file.facts.bytes, wish_.bytes));
    if (!fits(file.facts)) throw changed_file("its bytes differ");
    log_debug("{} is fetched: {}", wish_.shown, format_bytes(file.facts.bytes));
    return file;
  }

  const DownloadFolder& folder_;
  const DownloadOptions& options_;
  const FetchWish& wish_;
  std::optional<Deadline> patience_;
  int64_t seen_ = -1;
  int64_t room_ = 0;  // Bytes of the file for which there is room.
};

}  // namespace

int64_t stamp_of(const FetchedFacts& facts) {
  uint64_t number = 0;
  constexpr size_t kDigits = 15;
  const std::string_view digits = std::string_view(facts.digest).substr(0, kDigits);
  std::from_chars(digits.data(), digits.data() + digits.size(), number, 16);
  return static_cast<int64_t>(std::max<uint64_t>(number, 1));
}

std::optional<FetchedFile> fetch(const DownloadFolder& folder, const DownloadOptions& options,
                                 const FetchWish& wish) {
  try {
    return Fetch(folder, options, wish).run();
  } catch (const NoRoom&) {
    return std::nullopt;
  }
}

}  // namespace trireme::records
