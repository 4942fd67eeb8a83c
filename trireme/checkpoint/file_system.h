// The one way by which checkpoints change a disk, so that a test can lose unsynced bytes, fail a
// write or fill the disk. No torch.
//
// What happened is durable only after a sync: bytes after File::sync(), names after sync_folder()
// of their folder. Reading goes past it.
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

// Every function throws Error(io) with the path and the system's reason (refuse() makes it). Any
// thread; a File has one at a time.
class FileSystem {
 public:
  class File {
   public:
    virtual ~File() = default;  // Closes.
    // Appends some of the bytes, at least one; returns how many.
    virtual size_t write(std::span<const std::byte> bytes) = 0;
    virtual void sync() = 0;
  };
  class Lock {
   public:
    virtual ~Lock() = default;  // Lets go and removes the file.
  };
  struct Entry {
    std::string name;
    bool is_folder = false;  // Or a link to one.
  };

  virtual ~FileSystem() = default;
  // A new, empty file. One that has the name is unlinked first, so what a link points to, or what
  // has the same content by a hard link, stays as it is.
  virtual std::unique_ptr<File> create(const std::filesystem::path& path) = 0;
  virtual void make_folder(const std::filesystem::path& path) = 0;
  virtual void rename(const std::filesystem::path& from, const std::filesystem::path& to) = 0;
  // A file, a folder that is empty, or a link: never what it points to.
  virtual void remove(const std::filesystem::path& path) = 0;
  // Likewise, and a folder with all that is in it. Links are removed and not followed, at every
  // depth, also those that take a folder's place meanwhile. Nothing happens if nothing is there.
  virtual void remove_tree(const std::filesystem::path& path) = 0;
  virtual void sync_folder(const std::filesystem::path& path) = 0;
  virtual std::vector<Entry> list(const std::filesystem::path& folder) = 0;
  // A lock that the kernel lets go when the process ends, however it ends. Empty if somebody else
  // has it: `holder` is then the text that it left. Writes `mine` for the next one to read. A link
  // of that name is removed.
  virtual std::unique_ptr<Lock> try_lock(const std::filesystem::path& file, std::string_view mine,
                                         std::string& holder) = 0;
};

// The real one. Large writes whose memory and place in the file are multiples of kDirectAlignment
// go past the page cache where the disk can: a checkpoint would only push other pages out, and
// copying it there costs more than the disk's own part.
FileSystem& disk();
inline constexpr size_t kDirectAlignment = 4096;

// Throws Error(io): "cannot DOING PATH: REASON", with a remedy that fits the reason (an errno).
[[noreturn]] void refuse(std::string_view doing, const std::filesystem::path& path, int reason);
// Likewise for a write that failed after so many bytes.
[[noreturn]] void refuse_write(const std::filesystem::path& path, int reason, uint64_t written);

// Whether something has this name: also a link that points nowhere.
bool is_there(const std::filesystem::path& path);

}  // namespace trireme::checkpoint
