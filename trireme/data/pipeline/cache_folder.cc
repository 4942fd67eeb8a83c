#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/vfs.h>

#include <trireme/base/deadline.h>
#include <trireme/base/error.h>
#include <trireme/base/log.h>
#include <trireme/base/units.h>
#include <trireme/data/pipeline/cache_folder.h>
#include <trireme/data/pipeline/cache_head.h>
#include <trireme/records/network_files.h>
#include <unistd.h>
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <system_error>
#include <thread>

namespace trireme::data {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kEnding = ".cache";
constexpr size_t kNameLength = 32;  // Hexadecimal digits.
constexpr Milliseconds kPatience{10'000}, kPause{5};
constexpr int64_t kBytesOfBlock = 512;

[[noreturn]] void refuse_folder(const fs::path& folder, const std::string& what) {
  throw Error(ErrorCode::io, "data",
              fmt::format("the folder {} for caches cannot be used: {}", folder.string(), what),
              "data.cache_dir: a folder that can be written, with enough space");
}

// Others hold such a lock only for a moment.
bool lock_soon(int descriptor, int kind) {
  const Deadline deadline = Deadline::after(kPatience);
  while (::flock(descriptor, kind | LOCK_NB) != 0) {
    if ((errno != EWOULDBLOCK && errno != EINTR) || deadline.expired()) return false;
    std::this_thread::sleep_for(kPause);
  }
  return true;
}

bool is_name_of_cache(const std::string& name) {
  return name.size() == kNameLength + kEnding.size() && name.ends_with(kEnding) &&
         name.find_first_not_of("0123456789abcdef") == kNameLength;
}

double seconds_of(const timespec& time) {
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

// False: it is not the file of a cache.
bool read_facts(const fs::path& path, CacheFile& file) {
  const Descriptor open(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  struct stat facts {};
  if (!open || ::fstat(open.get(), &facts) != 0 || !S_ISREG(facts.st_mode)) return false;
  file = {.path = path,
          .bytes = int64_t{facts.st_blocks} * kBytesOfBlock,
          .used_at = seconds_of(facts.st_mtim)};
  CacheHead head{};
  const bool is_whole = ::pread(open.get(), &head, sizeof head, 0) == sizeof head &&
                        std::memcmp(head.magic, kCacheMagic, sizeof kCacheMagic) == 0;
  if (is_whole) {
    file.limit = static_cast<int64_t>(head.limit.load());
    file.samples = static_cast<int64_t>(head.samples);
    file.stored = static_cast<int64_t>(head.stored.load());
  }
  file.is_in_use = is_used_by_others(open.get());
  return true;
}

}  // namespace

bool lock_as_used(int descriptor) { return lock_soon(descriptor, LOCK_SH); }

bool is_used_by_others(int descriptor) {
  if (::flock(descriptor, LOCK_EX | LOCK_NB) != 0) return true;
  ::flock(descriptor, LOCK_UN);
  return false;
}

CacheFolder::CacheFolder(const fs::path& folder, bool make) : path_(folder) {
  std::error_code made;
  if (make) fs::create_directories(folder, made);
  if (made) refuse_folder(folder, made.message());
  folder_ = Descriptor(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!folder_) refuse_folder(folder, std::strerror(errno));
  struct statfs system {};
  if (::fstatfs(folder_.get(), &system) == 0)
    if (const auto name = records::network_file_system(static_cast<long>(system.f_type));
        !name.empty())
      refuse_folder(folder, fmt::format("it is on a network file system ({}), on which hosts "
                                        "would share it",
                                        name));
  if (!lock_soon(folder_.get(), LOCK_EX)) refuse_folder(folder, "another process keeps it locked");
}

std::vector<CacheFile> CacheFolder::files() const {
  std::vector<CacheFile> files;
  std::error_code failure;
  for (fs::directory_iterator entry(path_, failure), end; !failure && entry != end;
       entry.increment(failure)) {
    CacheFile file;
    if (is_name_of_cache(entry->path().filename().string()) && read_facts(entry->path(), file))
      files.push_back(std::move(file));
  }
  std::ranges::sort(files, std::greater(), &CacheFile::used_at);
  return files;
}

bool CacheFolder::remove(const CacheFile& file) {
  const Descriptor open(::open(file.path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  if (!open || ::flock(open.get(), LOCK_EX | LOCK_NB) != 0) return false;
  return ::unlink(file.path.c_str()) == 0;
}

int64_t CacheFolder::clear() {
  int64_t bytes = 0;
  for (const CacheFile& file : files())
    if (remove(file)) bytes += file.bytes;
  return bytes;
}

int64_t CacheFolder::make_room(const fs::path& file, int64_t wanted, int64_t limit) {
  int64_t room = limit;
  std::vector<CacheFile> others = files();
  std::erase_if(others, [&](const CacheFile& each) { return each.path == file; });
  for (const CacheFile& each : others)
    room -= each.is_in_use ? std::max(each.bytes, each.limit) : each.bytes;
  while (room < wanted && !others.empty()) {
    const CacheFile oldest = std::move(others.back());
    others.pop_back();
    if (oldest.is_in_use || !remove(oldest)) continue;
    room += oldest.bytes;
    log_info("the cache {} of {} was removed: all caches together may have {}",
             oldest.path.string(), format_bytes(oldest.bytes), format_bytes(limit));
  }
  return std::clamp<int64_t>(room, 0, wanted);
}

int64_t CacheFolder::usual_limit() const {
  struct statvfs facts {};
  if (::fstatvfs(folder_.get(), &facts) != 0) return 0;
  auto bytes = static_cast<int64_t>(facts.f_bavail * facts.f_frsize);
  for (const CacheFile& file : files()) bytes += file.bytes;
  return bytes / 4;
}

}  // namespace trireme::data
