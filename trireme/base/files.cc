#include <trireme/base/files.h>

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/magic.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <trireme/base/error.h>
#include <unistd.h>
#include <atomic>
#include <cerrno>
#include <system_error>
#include <utility>
#include <vector>

namespace trireme {
namespace fs = std::filesystem;
namespace {

std::string_view remedy_of(int reason) {
  switch (reason) {
    case ENOSPC:
    case EDQUOT: return "free some space, or choose another folder";
    case EACCES:
    case EPERM:
    case EROFS: return "choose a folder that this user may write, or change its permissions";
    case ENOENT: return "create its folder first, or correct the path";
    case ELOOP: return "correct the link, or choose another path";
    default: return "another path";
  }
}

[[noreturn]] void fail(std::string_view action, const fs::path& path, int reason) {
  throw Error(ErrorCode::io, "base",
              fmt::format("cannot {} '{}': {}", action, path.string(),
                          std::generic_category().message(reason)),
              remedy_of(reason));
}

class File {
 public:
  File(const fs::path& path, int flags) : fd_(::open(path.c_str(), flags | O_CLOEXEC, 0666)) {}
  explicit File(int fd) : fd_(fd) {}
  ~File() {
    if (fd_ >= 0) ::close(fd_);
  }
  File(File&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}

  explicit operator bool() const { return fd_ >= 0; }
  int fd() const { return fd_; }
  int close() { return ::close(std::exchange(fd_, -1)) == 0 ? 0 : errno; }  // 0, or the reason.

 private:
  int fd_;
};

// Returns 0, or the reason why the content was not written completely.
int write_all(const File& file, std::string_view content) {
  while (!content.empty()) {
    const ssize_t written = ::write(file.fd(), content.data(), content.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return errno;
    content.remove_prefix(static_cast<size_t>(written));
  }
  return 0;
}

// Returns 0, or the reason why the content is not on the disk. Some file systems report only on
// close that there was no space.
int write_durably(File& file, std::string_view content) {
  if (const int reason = write_all(file, content)) return reason;
  if (::fsync(file.fd()) != 0) return errno;
  return file.close();
}

struct Temporary {
  fs::path path;
  File file;
  File lock;  // While it is open, no process takes the file for a leftover.
};

constexpr std::string_view kTemporaryEnd = ".tmp";

// True if `file_name` is a name that create_temporary() makes for `name`:
// ".NAME.<digits>-<digits>.tmp".
bool is_temporary_of(std::string_view file_name, const std::string& name) {
  const std::string start = "." + name + ".";
  if (!file_name.starts_with(start) || !file_name.ends_with(kTemporaryEnd) ||
      file_name.size() < start.size() + kTemporaryEnd.size())
    return false;
  file_name.remove_prefix(start.size());
  file_name.remove_suffix(kTemporaryEnd.size());
  return file_name.find('-') != std::string_view::npos &&
         file_name.find_first_not_of("0123456789-") == std::string_view::npos;
}

// Removes temporary files that killed processes left. A living process has its file locked, also
// when it runs on another host. A file that cannot be removed only takes space.
void remove_leftovers(const fs::path& folder, const std::string& name) {
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error)) {
    const fs::path path = entry->path();
    if (!is_temporary_of(path.filename().string(), name)) continue;
    const File file(path, O_WRONLY | O_NOFOLLOW | O_NONBLOCK);
    if (file && ::flock(file.fd(), LOCK_EX | LOCK_NB) == 0) ::unlink(path.c_str());
  }
}

// Creates a hidden file in `folder`, so that no programme takes it for content. Its name is unique
// on this host.
Temporary create_temporary(const fs::path& folder, const std::string& name) {
  static std::atomic<int> counter{0};
  remove_leftovers(folder, name);
  for (;;) {
    fs::path path =
        folder / fmt::format(".{}.{}-{}{}", name, ::getpid(), counter++, kTemporaryEnd);
    File file(path, O_WRONLY | O_CREAT | O_EXCL);
    if (!file && errno == EEXIST) continue;  // A process of another host with our number made it.
    struct stat status {};
    // Another process took the file for a leftover, and removed it before it was locked.
    const bool is_gone = file && ::flock(file.fd(), LOCK_EX) == 0 &&
                         ::fstat(file.fd(), &status) == 0 && status.st_nlink == 0;
    File lock(file ? ::fcntl(file.fd(), F_DUPFD_CLOEXEC, 0) : -1);
    if (!is_gone) return {std::move(path), std::move(file), std::move(lock)};
  }
}

void fsync_folder(const fs::path& folder) {
  const File handle(folder.empty() ? fs::path(".") : folder, O_RDONLY | O_DIRECTORY);
  if (!handle) fail("open", folder, errno);
  if (::fsync(handle.fd()) == 0) return;
  // Some network file systems have no fsync for folders.
  const bool has_no_fsync = errno == EINVAL || errno == ENOTSUP;
  if (!has_no_fsync) fail("fsync", folder, errno);
}

// A device or a pipe has no content to keep, and must not be replaced by a file.
void write_in_place(const fs::path& path, std::string_view content) {
  File file(path, O_WRONLY);
  if (!file) fail("open", path, errno);
  int reason = write_all(file, content);
  if (reason == 0) reason = file.close();
  if (reason != 0) fail("write", path, reason);
}

// The path where the content is stored. A link continues to point to it.
fs::path behind_links(const fs::path& path) {
  std::error_code unknown;
  const fs::path place = fs::absolute(path, unknown);
  if (unknown) return path;
  const fs::path target = fs::weakly_canonical(place, unknown);
  return unknown ? place : target;
}

// Creates the folder with its parents. All of them survive a loss of power.
void create_durably(const fs::path& folder) {
  std::error_code reason;
  std::vector<fs::path> missing;
  for (fs::path each = folder; !each.empty() && !fs::exists(each, reason);
       each = each.parent_path())
    missing.push_back(each);
  fs::create_directories(folder, reason);
  if (reason) fail("create folder", folder, reason.value());
  for (const fs::path& each : missing) fsync_folder(each.parent_path());
}

}  // namespace

void write_file_atomically(const fs::path& path, std::string_view content) {
  const fs::path target = behind_links(path);
  struct stat before {};
  const bool exists = ::stat(target.c_str(), &before) == 0;
  if (exists && S_ISDIR(before.st_mode)) fail("write", path, EISDIR);
  if (exists && !S_ISREG(before.st_mode)) return write_in_place(path, content);

  auto [temporary, file, lock] =
      create_temporary(target.parent_path(), target.filename().string());
  if (!file) fail("write", path, errno);
  int reason = 0;
  if (exists && ::fchmod(file.fd(), before.st_mode & 07777) != 0) reason = errno;
  if (reason == 0) reason = write_durably(file, content);
  if (reason == 0 && ::rename(temporary.c_str(), target.c_str()) != 0) reason = errno;
  if (reason != 0) {
    ::unlink(temporary.c_str());
    fail("write", path, reason);
  }
  fsync_folder(target.parent_path());
}

std::string read_file(const fs::path& path) {
  const File file(path, O_RDONLY);
  if (!file && (errno == ENOENT || errno == ENOTDIR)) {
    throw Error(ErrorCode::not_found, "base", fmt::format("there is no file '{}'", path.string()),
                "correct the path");
  }
  if (!file) fail("open", path, errno);
  struct stat status {};
  std::string content;
  if (::fstat(file.fd(), &status) == 0 && S_ISREG(status.st_mode))
    content.reserve(static_cast<size_t>(status.st_size));
  char piece[1 << 16];
  for (;;) {
    const ssize_t got = ::read(file.fd(), piece, sizeof piece);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail("read", path, errno);
    if (got == 0) return content;
    content.append(piece, static_cast<size_t>(got));
  }
}

bool path_exists(const fs::path& path) {
  std::error_code reason;
  const bool exists = fs::exists(path, reason);
  if (reason) fail("examine", path, reason.value());
  return exists;
}

void require_writable_folder(const fs::path& path) {
  const fs::path folder = path.empty() ? fs::path(".") : path;
  create_durably(folder);
  auto [probe, file, lock] = create_temporary(folder, "probe");
  if (!file) fail("write into folder", folder, errno);
  const int unwritten = write_durably(file, "x");
  ::unlink(probe.c_str());
  if (unwritten != 0) fail("write into folder", folder, unwritten);
}

Descriptor make_nameless_file(const fs::path& folder, int flags) {
  flags |= O_RDWR | O_CLOEXEC;
  Descriptor file(::open(folder.c_str(), O_TMPFILE | flags, 0600));
  if (file || (errno != EOPNOTSUPP && errno != EISDIR)) return file;
  std::string name = folder / "trireme-XXXXXX";  // The file system has no O_TMPFILE.
  file = Descriptor(::mkostemp(name.data(), flags & ~O_RDWR));
  if (file) ::unlink(name.c_str());
  return file;
}

bool is_in_memory(const fs::path& folder) {
  struct statfs facts {};
  if (::statfs(folder.c_str(), &facts) != 0) return false;
  return facts.f_type == TMPFS_MAGIC || facts.f_type == RAMFS_MAGIC;
}

}  // namespace trireme
