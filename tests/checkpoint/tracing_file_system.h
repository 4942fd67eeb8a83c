// A disk that records its operations. It can fail at an operation, or be full.
#pragma once
#include <trireme/base/error.h>
#include <trireme/checkpoint/file_system.h>
#include <cerrno>
#include <functional>
#include <limits>

namespace trireme::checkpoint {

struct Operation {
  enum class Kind { create, write, sync, make_folder, rename, remove, sync_folder } kind;
  std::filesystem::path path, to;  // `to` only for rename.
  // create, write and sync: the file's number in the trace.
  size_t file = 0;
  uint64_t offset = 0;           // write
  std::vector<std::byte> bytes;  // write
};

// Passes on everything except the syncs, which would only take time. An operation that fails does
// nothing.
class TracingFileSystem : public FileSystem {
 public:
  std::vector<Operation> trace;
  // The operation with this number fails once, with `reason`.
  size_t fail_at = std::numeric_limits<size_t>::max();
  int reason = EIO;
  uint64_t free_bytes = std::numeric_limits<uint64_t>::max();
  // The number of operations so far, also failed ones and lists.
  size_t asked = 0;

  std::unique_ptr<File> create(const std::filesystem::path& path) override {
    count("create", path);
    trace.push_back({Operation::Kind::create, path, {}, files_});
    return std::make_unique<TracedFile>(*this, path, files_++, disk().create(path));
  }
  void make_folder(const std::filesystem::path& path) override {
    count("create the folder", path);
    disk().make_folder(path);
    trace.push_back({Operation::Kind::make_folder, path});
  }
  void rename(const std::filesystem::path& from, const std::filesystem::path& to) override {
    count("rename", from);
    disk().rename(from, to);
    trace.push_back({Operation::Kind::rename, from, to});
  }
  void remove(const std::filesystem::path& path) override {
    count("remove", path);
    disk().remove(path);
    trace.push_back({Operation::Kind::remove, path});
  }
  // Removes file by file, as the disk does it: each removal is an operation
  // that can be the last one.
  void remove_tree(const std::filesystem::path& path) override {
    std::error_code nothing;
    if (std::filesystem::is_directory(std::filesystem::symlink_status(path, nothing)))
      for (const Entry& entry : disk().list(path)) remove_tree(path / entry.name);
    if (is_there(path)) remove(path);
  }
  void sync_folder(const std::filesystem::path& path) override {
    count("sync the folder", path);
    trace.push_back({Operation::Kind::sync_folder, path});
  }
  std::vector<Entry> list(const std::filesystem::path& folder) override {
    count("list", folder);
    return disk().list(folder);
  }
  std::unique_ptr<Lock> try_lock(const std::filesystem::path& file, std::string_view mine,
                                 std::string& holder) override {
    count("lock", file);
    return disk().try_lock(file, mine, holder);
  }

 private:
  class TracedFile : public File {
   public:
    TracedFile(TracingFileSystem& owner, std::filesystem::path path, size_t number,
               std::unique_ptr<File> file)
        : owner_(owner), path_(std::move(path)), number_(number), file_(std::move(file)) {}
    size_t write(std::span<const std::byte> bytes) override {
      owner_.count("write", path_);
      if (owner_.free_bytes == 0) refuse_write(path_, ENOSPC, written_);
      const size_t count = file_->write(
          bytes.first(std::min<uint64_t>({bytes.size(), owner_.free_bytes, kLargestWrite})));
      owner_.free_bytes -= count;
      owner_.trace.push_back({Operation::Kind::write,
                              path_,
                              {},
                              number_,
                              written_,
                              {bytes.begin(), bytes.begin() + static_cast<long>(count)}});
      written_ += count;
      return count;
    }
    void sync() override {
      owner_.count("write", path_);
      owner_.trace.push_back({Operation::Kind::sync, path_, {}, number_});
    }

   private:
    // The limit is small, so that a file needs several writes.
    static constexpr uint64_t kLargestWrite = 100;
    TracingFileSystem& owner_;
    std::filesystem::path path_;
    size_t number_;
    uint64_t written_ = 0;
    std::unique_ptr<File> file_;
  };

  void count(std::string_view doing, const std::filesystem::path& path) {
    if (asked++ == fail_at) refuse(doing, path, reason);
  }

  size_t files_ = 0;
};

}  // namespace trireme::checkpoint
