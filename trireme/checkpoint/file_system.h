// All operations by which checkpoints change a disk. A test can replace them to lose unsynced
// bytes, fail a write or fill the disk.
//
// A change is durable only after a sync: bytes after File::sync(), names after sync_folder() of
// their folder. Reads do not go through this interface.
#pragma once
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace trireme::checkpoint {

// Every function throws Error(io) with the path and the system's reason (see refuse()). Any thread
// may call it, but only one thread at a time may use a File.
class FileSystem {
 public:
  class File {
   public:
    virtual ~File() = default;  // Closes the file.
    // Appends at least one of the bytes, and returns how many it appended.
    virtual size_t write(std::span<const std::byte> bytes) = 0;
    virtual void sync() = 0;
  };
  class Lock {
   public:
    virtual ~Lock() = default;  // Releases the lock and removes the file.
  };
  struct Entry {
    std::string name;
    bool is_folder = false;  // It is true for a link to a folder too.
  };

  virtual ~FileSystem() = default;
  // Creates an empty file. If the name exists, it is unlinked first, so the target of a link and
  // other hard links of the old content stay as they were.
  virtual std::unique_ptr<File> create(const std::filesystem::path& path) = 0;
  virtual void make_folder(const std::filesystem::path& path) = 0;
  virtual void rename(const std::filesystem::path& from, const std::filesystem::path& to) = 0;
  // Gives a file a second name, which is a hard link. Returns false if the file system, or this
  // object, has none; then nothing was done.
  virtual bool link(const std::filesystem::path& /*file*/, const std::filesystem::path& /*name*/) {
    return false;
  }
  // Removes a file, an empty folder or a link, but never the target of a link.
  virtual void remove(const std::filesystem::path& path) = 0;
  // Does the same, and removes a folder with everything in it. At every depth links are removed
  // and not followed, also if a link takes a folder's place during the call. Does nothing if the
  // path does not exist.
  virtual void remove_tree(const std::filesystem::path& path) = 0;
  virtual void sync_folder(const std::filesystem::path& path) = 0;
  virtual std::vector<Entry> list(const std::filesystem::path& folder) = 0;
  // Takes a lock that the kernel releases when the process ends, however it ends. Writes `mine`
  // into the file for the next process to read. Returns null if another process has the lock:
  // `holder` is then the text that this process wrote. A link of that name is removed.
  virtual std::unique_ptr<Lock> try_lock(const std::filesystem::path& file, std::string_view mine,
                                         std::string& holder) = 0;
};

// The real disk. Large writes bypass the page cache where the disk can do so, if their memory and
// their place in the file are multiples of kDirectAlignment. A checkpoint in the page cache would
// only push out other pages, and the copy would cost more than the write itself.
FileSystem& disk();
inline constexpr size_t kDirectAlignment = 4096;

// Throws Error(io) "cannot DOING PATH: REASON", with a remedy that fits the reason.
// `reason` is an errno.
[[noreturn]] void refuse(std::string_view doing, const std::filesystem::path& path, int reason);
// Does the same for a write that failed after `written` bytes.
[[noreturn]] void refuse_write(const std::filesystem::path& path, int reason, uint64_t written);

// Returns true if something has this name, also for a link that leads nowhere.
bool is_there(const std::filesystem::path& path);

}  // namespace trireme::checkpoint
