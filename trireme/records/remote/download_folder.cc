#include <trireme/records/remote/download_folder.h>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/vfs.h>
#include <trireme/base/error.h>
#include <trireme/base/files.h>
#include <trireme/base/host_name.h>
#include <trireme/base/json.h>
#include <trireme/checkpoint/digest.h>
#include <trireme/records/damage.h>
#include <trireme/records/data_file.h>
#include <trireme/records/network_files.h>
#include <unistd.h>
#include <algorithm>
#include <array>
#include <cerrno>
#include <system_error>
#include <thread>
#include <vector>

namespace trireme::records {
namespace fs = std::filesystem;
namespace {

constexpr const char* kWhole = ".shard";
constexpr const char* kWholeFacts = ".json";
constexpr const char* kPart = ".part";
constexpr const char* kPartFacts = ".part.json";
constexpr Milliseconds kMostWaitForRoom{30'000};

Damage disk_refused(std::string_view doing) {
  const int reason = errno;
  return Damage(fmt::format("cannot {} the file in the folder of downloads: {}", doing,
                            std::generic_category().message(reason)),
                reason == ENOSPC || reason == EDQUOT
                    ? "more disk space, or a data.download_dir on a disk "
                      "that has it"
                : reason == EMFILE || reason == ENFILE ? "a larger limit of open files (ulimit -n)"
                                                       : "a data.download_dir that can be written",
                ErrorCode::io);
}

// Bytes that were in memory when the machine lost its power may be missing. A part of another boot
// is therefore begun anew.
std::string id_of_boot() {
  try {
    return read_file("/proc/sys/kernel/random/boot_id");
  } catch (const Error&) {
    return {};
  }
}

Json json_of_facts(const FetchedFacts& facts) {
  Json json{{"bytes", facts.bytes}, {"version", facts.version}};
  if (facts.digest.empty())
    json["boot"] = id_of_boot();
  else
    json["digest"] = facts.digest;
  return json;
}

std::optional<FetchedFacts> read_facts(const fs::path& path) {
  try {
    const Json json = Json::parse(read_file(path));
    FetchedFacts facts{.bytes = json.at("bytes"), .version = json.at("version"), .digest = {}};
    if (json.contains("digest"))
      facts.digest = json.at("digest");
    else if (json.at("boot") != id_of_boot() || id_of_boot().empty())
      return std::nullopt;
    return facts;
  } catch (const std::exception&) {
    return std::nullopt;
  }
}

void write_facts(const fs::path& path, const FetchedFacts& facts) {
  try {
    write_file_atomically(path, json_of_facts(facts).dump());
  } catch (const Error& error) {
    throw Damage(error.what(), "a data.download_dir that can be written", ErrorCode::io);
  }
}

bool lock(const Descriptor& file, int how) { return ::flock(file.get(), how | LOCK_NB) == 0; }

// Whether the path still leads to the open file.
bool is_at(const fs::path& path, const Descriptor& file) {
  struct stat opened {
  }, there{};
  return ::fstat(file.get(), &opened) == 0 && ::lstat(path.c_str(), &there) == 0 &&
         opened.st_ino == there.st_ino && opened.st_dev == there.st_dev;
}

// Sets the time of the file's use, which decides what is removed first. A second is exact enough.
void note_use(const Descriptor& file) {
  struct stat status {};
  timespec now{};
  ::clock_gettime(CLOCK_REALTIME, &now);
  if (::fstat(file.get(), &status) == 0 && status.st_mtim.tv_sec + 1 < now.tv_sec)
    ::futimens(file.get(), nullptr);
}

int64_t size_of_open(const Descriptor& file) {
  struct stat status {};
  return ::fstat(file.get(), &status) == 0 ? status.st_size : -1;
}

std::string digest_of_open(const Descriptor& file, int64_t bytes) {
  checkpoint::Digest digest;
  std::vector<std::byte> buffer(1 << 20);
  for (int64_t at = 0; at < bytes;) {
    const ssize_t got = ::pread(file.get(), buffer.data(), buffer.size(), at);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) throw disk_refused("read");
    digest.update(std::span(buffer).first(static_cast<size_t>(got)));
    at += got;
  }
  const auto pieces = digest.pieces();
  return digest_of(std::as_bytes(std::span(pieces)));
}

struct Stored {
  std::string name;
  fs::path path;
  int64_t bytes = 0;  // Of the disk, also those that are only reserved.
  int64_t used = 0;   // The time.
  bool is_part = false;
};

std::vector<Stored> stored_in(const fs::path& folder) {
  std::vector<Stored> all;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error)) {
    const fs::path& path = entry->path();
    const bool is_part = path.extension() == kPart;
    if (!is_part && path.extension() != kWhole) continue;
    struct stat status {};
    if (::lstat(path.c_str(), &status) != 0 || !S_ISREG(status.st_mode)) continue;
    all.push_back({.name = path.stem(),
                   .path = path,
                   .bytes = std::max<int64_t>(status.st_size, int64_t{status.st_blocks} * 512),
                   .used = time_of_file(path),
                   .is_part = is_part});
  }
  std::ranges::sort(all, {}, &Stored::used);
  return all;
}

// The lock of those that remove files or give them their names: two must not count on the same
// room, and none may remove the facts that another has just written.
Descriptor lock_names(const fs::path& folder) {
  Descriptor names(
      ::open((folder / ".room").c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666));
  if (!names) throw disk_refused("lock");
  for (const auto deadline = Deadline::after(kMostWaitForRoom); !lock(names, LOCK_EX);) {
    if (deadline.expired())
      throw Damage("another process makes room in the folder of downloads, and does not end",
                   "end the process that is stopped there", ErrorCode::timeout);
    std::this_thread::sleep_for(Milliseconds(5));
  }
  return names;
}

int64_t bytes_of_stored(const std::vector<Stored>& all) {
  int64_t bytes = 0;
  for (const Stored& each : all) bytes += each.bytes;
  return bytes;
}

}  // namespace

DownloadFolder::DownloadFolder(fs::path folder) : folder_(std::move(folder)) {
  require_writable_folder(folder_);
  // Not every network file system has locks that other hosts see.
  struct statfs disk {};
  if (::statfs(folder_.c_str(), &disk) == 0 && !network_file_system(disk.f_type).empty()) {
    folder_ /= own_host_name();
    require_writable_folder(folder_);
  }
}

fs::path DownloadFolder::file(const std::string& name, const char* end) const {
  return folder_ / (name + end);
}

bool DownloadFolder::has(const std::string& name) const { return path_exists(file(name, kWhole)); }

std::optional<FetchedFile> DownloadFolder::open(const std::string& name) const {
  const fs::path path = file(name, kWhole);
  Descriptor opened(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  // A process that has the exclusive lock makes the file whole, or removes it.
  if (!opened || !lock(opened, LOCK_SH) || !is_at(path, opened)) return std::nullopt;
  const auto facts = read_facts(file(name, kWholeFacts));
  if (!facts || facts->digest.empty() || facts->bytes != size_of_open(opened)) return std::nullopt;
  // The facts may be those of a newer file that has taken the place meanwhile.
  if (!is_at(path, opened)) return std::nullopt;
  note_use(opened);
  return FetchedFile{std::move(opened), *facts};
}

Descriptor DownloadFolder::reopen(const std::string& name, const KnownFile& known) const {
  Descriptor opened(::open(file(name, kWhole).c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  if (!opened || !lock(opened, LOCK_SH)) return Descriptor();
  const KnownFile now = known_file(opened);
  struct stat status {};
  // A file that was removed meanwhile has no name.
  const bool is_same = now.device == known.device && now.number == known.number &&
                       now.bytes == known.bytes && ::fstat(opened.get(), &status) == 0 &&
                       status.st_nlink > 0;
  if (!is_same) return Descriptor();
  note_use(opened);
  return opened;
}

KnownFile known_file(const Descriptor& file) {
  struct stat status {};
  if (::fstat(file.get(), &status) != 0) return {};
  return {status.st_dev, status.st_ino, status.st_size};
}

std::optional<PartialFile> DownloadFolder::begin(const std::string& name) const {
  const fs::path path = file(name, kPart);
  PartialFile part;
  std::error_code unknown;
  if (!fs::is_directory(folder_, unknown)) require_writable_folder(folder_);
  part.descriptor =
      Descriptor(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666));
  if (!part.descriptor) throw disk_refused("make");
  if (!lock(part.descriptor, LOCK_EX) || !is_at(path, part.descriptor)) return std::nullopt;
  const int64_t bytes = size_of_open(part.descriptor);
  if (const auto facts = read_facts(file(name, kPartFacts)); facts && bytes > 0) {
    part.facts = *facts;
    part.bytes = facts->bytes >= 0 ? std::min(bytes, facts->bytes) : bytes;
  }
  return part;
}

int64_t DownloadFolder::progress(const std::string& name) const {
  struct stat status {};
  return ::stat(file(name, kPart).c_str(), &status) == 0 ? status.st_size : -1;
}

void DownloadFolder::restart(PartialFile& part, const std::string& name,
                             FetchedFacts facts) const {
  // Nobody may take the old bytes for those of the new version.
  std::error_code ignored;
  fs::remove(file(name, kPartFacts), ignored);
  if (::ftruncate(part.descriptor.get(), 0) != 0) throw disk_refused("write");
  part.bytes = 0;
  part.facts = std::move(facts);
  // Without a version nobody can tell whether the rest would fit.
  if (!part.facts.version.empty()) write_facts(file(name, kPartFacts), part.facts);
}

void DownloadFolder::drop(PartialFile part, const std::string& name) const {
  std::error_code ignored;
  fs::remove(file(name, kPartFacts), ignored);
  fs::remove(file(name, kPart), ignored);
  part.descriptor.reset();  // The lock ends last.
}

void DownloadFolder::note_digest(PartialFile& part) const {
  if (::ftruncate(part.descriptor.get(), part.bytes) != 0) throw disk_refused("write");
  if (::fdatasync(part.descriptor.get()) != 0) throw disk_refused("write");
  part.facts.bytes = part.bytes;
  part.facts.digest = digest_of_open(part.descriptor, part.bytes);
}

FetchedFile DownloadFolder::finish(PartialFile part, const std::string& name) const {
  if (part.facts.digest.empty()) note_digest(part);
  const Descriptor names = lock_names(folder_);
  // New facts must never stand beside the bytes of an older file.
  std::error_code ignored;
  fs::remove(file(name, kWhole), ignored);
  write_facts(file(name, kWholeFacts), part.facts);
  // From the exclusive lock to the shared one, so that others can open the file at once.
  ::flock(part.descriptor.get(), LOCK_SH);
  if (::rename(file(name, kPart).c_str(), file(name, kWhole).c_str()) != 0)
    throw disk_refused("rename");
  fs::remove(file(name, kPartFacts), ignored);
  return {std::move(part.descriptor), std::move(part.facts)};
}

int64_t DownloadFolder::limit(int64_t most) const {
  if (most >= 0) return most;
  struct statvfs disk {};
  if (::statvfs(folder_.c_str(), &disk) != 0) return 0;
  const auto free =
      static_cast<int64_t>(disk.f_bavail) * static_cast<int64_t>(std::max(1UL, disk.f_frsize));
  return (free + bytes_of_stored(stored_in(folder_))) / 2;
}

void DownloadFolder::reserve(PartialFile& part, int64_t bytes) const {
  if (bytes <= 0) return;
  // The size stays, so that it says how much has come. Not every file system can do it.
  if (::fallocate(part.descriptor.get(), FALLOC_FL_KEEP_SIZE, part.bytes, bytes) != 0 &&
      (errno == ENOSPC || errno == EDQUOT))
    throw disk_refused("make room for");
}

bool DownloadFolder::make_room(PartialFile& part, int64_t bytes, int64_t most,
                               const std::function<bool(const std::string&)>& keep) const {
  const Descriptor names = lock_names(folder_);
  const int64_t all = limit(most);
  std::vector<Stored> stored = stored_in(folder_);
  struct stat own {};
  ::fstat(part.descriptor.get(), &own);
  // What the part has reserved already is counted as stored.
  const int64_t reserved = std::max<int64_t>(0, int64_t{own.st_blocks} * 512 - part.bytes);
  int64_t lacking = bytes_of_stored(stored) + std::max<int64_t>(0, bytes - reserved) - all;
  for (const Stored& each : stored) {
    if (lacking <= 0) break;
    if (keep && keep(each.name)) continue;
    // NFS gives no exclusive lock on a file that is open for reading alone.
    const Descriptor opened(::open(each.path.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW));
    if (!opened || !lock(opened, LOCK_EX) || !is_at(each.path, opened)) continue;  // In use.
    std::error_code ignored;
    // The facts first: once the name is free, another process may write new ones.
    fs::remove(file(each.name, each.is_part ? kPartFacts : kWholeFacts), ignored);
    if (!fs::remove(each.path, ignored)) continue;
    lacking -= each.bytes;
  }
  if (lacking > 0) return false;
  reserve(part, bytes);
  return true;
}

}  // namespace trireme::records
