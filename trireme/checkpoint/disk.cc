#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <trireme/base/descriptor.h>
#include <trireme/base/error.h>
#include <trireme/base/log.h>
#include <trireme/checkpoint/file_system.h>
#include <unistd.h>
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <system_error>
#include <utility>

namespace trireme::checkpoint {
namespace {

namespace fs = std::filesystem;
// Signals and errors are noticed after at most this number of bytes.
constexpr size_t kMaxWrite = 4 << 20;
constexpr size_t kSmallestDirect = 1 << 20;  // Below it the page cache is faster.

bool is_full(int reason) { return reason == ENOSPC || reason == EDQUOT || reason == EFBIG; }

Descriptor opened(const fs::path& path, int flags) {
  return Descriptor(::open(path.c_str(), flags | O_CLOEXEC, 0666));
}

// Creates a file that no other process has a name for.
Descriptor created(const fs::path& path) {
  for (;;) {
    Descriptor file = opened(path, O_WRONLY | O_CREAT | O_EXCL);
    if (file || errno != EEXIST) return file;
    if (::unlink(path.c_str()) != 0 && errno != ENOENT) return Descriptor();
  }
}

class DiskFile : public FileSystem::File {
 public:
  explicit DiskFile(const fs::path& path) : path_(path), descriptor_(created(path)) {
    if (!descriptor_) refuse("create", path, errno);
  }

  size_t write(std::span<const std::byte> bytes) override {
    const bool aligned = reinterpret_cast<uintptr_t>(bytes.data()) % kDirectAlignment == 0 &&
                         position_ % kDirectAlignment == 0;
    if (can_be_direct_ && aligned && bytes.size() >= kSmallestDirect && set_direct(true)) {
      const size_t count = std::min(bytes.size(), kMaxWrite) / kDirectAlignment * kDirectAlignment;
      if (const ssize_t written = write_some(bytes.first(count)); written > 0)
        return advance(written);
      if (errno != EINVAL) refuse_write(path_, errno, position_);
      // The disk has larger blocks, or the file system promises more than it can do.
      can_be_direct_ = false;
    }
    set_direct(false);
    const ssize_t written = write_some(bytes.first(std::min(bytes.size(), kMaxWrite)));
    if (written < 0) refuse_write(path_, errno, position_);
    return advance(written);
  }

  void sync() override {
    if (::fsync(descriptor_.get()) != 0) refuse_write(path_, errno, position_);
  }

 private:
  ssize_t write_some(std::span<const std::byte> bytes) const {
    for (;;) {
      const ssize_t written = ::write(descriptor_.get(), bytes.data(), bytes.size());
      if (written >= 0 || errno != EINTR) return written;
    }
  }
  size_t advance(ssize_t written) {
    position_ += static_cast<size_t>(written);
    return static_cast<size_t>(written);
  }
  bool set_direct(bool direct) {
    if (direct == is_direct_) return true;
    const int flags = ::fcntl(descriptor_.get(), F_GETFL);
    if (flags < 0 ||
        ::fcntl(descriptor_.get(), F_SETFL, direct ? flags | O_DIRECT : flags & ~O_DIRECT) != 0) {
      can_be_direct_ = false;
      return false;
    }
    is_direct_ = direct;
    return true;
  }

  fs::path path_;
  Descriptor descriptor_;
  size_t position_ = 0;
  bool is_direct_ = false, can_be_direct_ = true;
};

bool is_the_file_at(const Descriptor& descriptor, const fs::path& path) {
  struct stat mine {
  }, there{};
  return ::fstat(descriptor.get(), &mine) == 0 && ::lstat(path.c_str(), &there) == 0 &&
         mine.st_ino == there.st_ino && mine.st_dev == there.st_dev;
}

class DiskLock : public FileSystem::Lock {
 public:
  DiskLock(fs::path path, Descriptor descriptor)
      : path_(std::move(path)), descriptor_(std::move(descriptor)) {}
  ~DiskLock() override {
    // The name is removed before the lock is released, so no other process can have it yet.
    if (is_the_file_at(descriptor_, path_)) ::unlink(path_.c_str());
  }

 private:
  fs::path path_;
  Descriptor descriptor_;
};

std::string text_of(const Descriptor& descriptor) {
  char text[1024];
  const ssize_t count = ::pread(descriptor.get(), text, sizeof text, 0);
  return {text, static_cast<size_t>(std::max<ssize_t>(count, 0))};
}

class Disk : public FileSystem {
 public:
  std::unique_ptr<File> create(const fs::path& path) override {
    return std::make_unique<DiskFile>(path);
  }
  void make_folder(const fs::path& path) override {
    if (::mkdir(path.c_str(), 0777) != 0) refuse("create the folder", path, errno);
  }
  void rename(const fs::path& from, const fs::path& to) override {
    if (::rename(from.c_str(), to.c_str()) != 0) refuse("rename", from, errno);
  }
  bool link(const fs::path& file, const fs::path& name) override {
    if (::link(file.c_str(), name.c_str()) == 0) return true;
    if (errno == ENOENT || errno == EEXIST) refuse("link", file, errno);
    return false;
  }
  void remove(const fs::path& path) override {
    if (::remove(path.c_str()) != 0) refuse("remove", path, errno);
  }
  void remove_tree(const fs::path& path) override {
    std::error_code error;
    fs::remove_all(path, error);  // It uses openat() and unlinkat() and follows no links.
    if (error) refuse("remove", path, error.value());
  }

  void sync_folder(const fs::path& path) override {
    const Descriptor folder = opened(path, O_RDONLY | O_DIRECTORY);
    if (!folder) refuse("sync the folder", path, errno);
    // EINVAL and ENOTSUP: the file system cannot sync folders, and therefore needs no such call.
    if (::fsync(folder.get()) != 0 && errno != EINVAL && errno != ENOTSUP)
      refuse("sync the folder", path, errno);
  }

  std::vector<Entry> list(const fs::path& folder) override {
    try {
      std::vector<Entry> entries;
      std::error_code unknown;  // A link to itself, for example, is no folder.
      for (const auto& entry : fs::directory_iterator(folder))
        entries.push_back({entry.path().filename(), entry.is_directory(unknown)});
      return entries;
    } catch (const fs::filesystem_error& error) {
      refuse("list", folder, error.code().value());
    }
  }

  std::unique_ptr<Lock> try_lock(const fs::path& path, std::string_view mine,
                                 std::string& holder) override {
    for (;;) {
      Descriptor descriptor = opened(path, O_RDWR | O_CREAT | O_NOFOLLOW);
      if (!descriptor && errno == ELOOP && (::unlink(path.c_str()) == 0 || errno == ENOENT))
        continue;
      if (!descriptor) refuse("create", path, errno);
      if (::flock(descriptor.get(), LOCK_EX | LOCK_NB) != 0) {
        if (errno == EINTR) continue;
        if (errno == EWOULDBLOCK) {
          holder = text_of(descriptor);
          return nullptr;
        }
        if (errno != ENOSYS && errno != ENOTSUP && errno != ENOLCK) refuse("lock", path, errno);
        log_warning("{} cannot be locked here ({}): two jobs in its folder would not be noticed",
                    path.string(), std::strerror(errno));
      }
      // The last holder has removed this file meanwhile, so it belongs to no one.
      if (!is_the_file_at(descriptor, path)) continue;
      // The text is only for people. A full disk must not keep a run from continuing.
      if (::ftruncate(descriptor.get(), 0) == 0 &&
          ::pwrite(descriptor.get(), mine.data(), mine.size(), 0) < 0)
        errno = 0;
      return std::make_unique<DiskLock>(path, std::move(descriptor));
    }
  }
};

}  // namespace

FileSystem& disk() {
  static Disk the_disk;
  return the_disk;
}

void refuse(std::string_view doing, const fs::path& path, int reason) {
  throw Error(ErrorCode::io, "checkpoint",
              fmt::format("cannot {} {}: {}", doing, path.string(),
                          std::generic_category().message(reason)),
              is_full(reason) ? "free space there, or choose a folder on another disk"
                              : "check the disk, the path and its permissions");
}

void refuse_write(const fs::path& path, int reason, uint64_t written) {
  throw Error(ErrorCode::io, "checkpoint",
              fmt::format("cannot write {}: {} after {} bytes", path.string(),
                          std::generic_category().message(reason), written),
              is_full(reason) ? "free space there, or choose a folder on another disk"
                              : "check the disk, the path and its permissions");
}

bool is_there(const fs::path& path) {
  std::error_code ignored;
  return fs::symlink_status(path, ignored).type() != fs::file_type::not_found;
}

}  // namespace trireme::checkpoint
