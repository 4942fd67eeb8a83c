#include <trireme/base/files.h>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <trireme/base/error.h>
#include <unistd.h>
#include <atomic>
#include <cerrno>
#include <system_error>
#include <utility>

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

// 0, or the reason why not everything was written.
int write_all(const File& file, std::string_view content) {
  while (!content.empty()) {
    const ssize_t written = ::write(file.fd(), content.data(), content.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return errno;
    content.remove_prefix(static_cast<size_t>(written));
  }
  return 0;
}

// 0, or the reason why the content is not on the disk. Some file systems say only on close that
// there was no space.
int write_durably(File& file, std::string_view content) {
  if (const int reason = write_all(file, content)) return reason;
  if (::fsync(file.fd()) != 0) return errno;
  return file.close();
}

struct Temporary {
  fs::path path;
  File file;
};

// A new hidden file in `folder`, so that nobody takes it for content; its name is unique on this
// host.
Temporary create_temporary(const fs::path& folder, const std::string& name) {
  static std::atomic<int> counter{0};
  for (;;) {
    fs::path path = folder / fmt::format(".{}.{}-{}.tmp", name, ::getpid(), counter++);
    File file(path, O_WRONLY | O_CREAT | O_EXCL);
    const bool leftover = !file && errno == EEXIST;  // Of a crashed process that had our number.
    if (!leftover) return {std::move(path), std::move(file)};
  }
}

void fsync_folder(const fs::path& folder) {
  const File handle(folder, O_RDONLY | O_DIRECTORY);
  if (!handle) fail("open", folder, errno);
  if (::fsync(handle.fd()) == 0) return;
  const bool has_no_fsync = errno == EINVAL || errno == ENOTSUP;  // Some network file systems.
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

// Where the content will stand: a link keeps pointing to it.
fs::path behind_links(const fs::path& path) {
  std::error_code ignored;
  const fs::path target = fs::weakly_canonical(fs::absolute(path), ignored);
  return ignored ? fs::absolute(path) : target;
}

}  // namespace

void write_file_atomically(const fs::path& path, std::string_view content) {
  const fs::path target = behind_links(path);
  struct stat before {};
  const bool exists = ::stat(target.c_str(), &before) == 0;
  if (exists && S_ISDIR(before.st_mode)) fail("write", path, EISDIR);
  if (exists && !S_ISREG(before.st_mode)) return write_in_place(path, content);

  auto [temporary, file] = create_temporary(target.parent_path(), target.filename().string());
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

void require_writable_folder(const fs::path& folder) {
  std::error_code reason;
  fs::create_directories(folder, reason);
  if (reason) fail("create folder", folder, reason.value());
  auto [probe, file] = create_temporary(folder, "probe");
  if (!file) fail("write into folder", folder, errno);
  const int unwritten = write_durably(file, "x");
  ::unlink(probe.c_str());
  if (unwritten != 0) fail("write into folder", folder, unwritten);
}

}  // namespace trireme
