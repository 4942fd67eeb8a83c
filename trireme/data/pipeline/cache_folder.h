// The folder with the files of cache(disk). All caches in it have one limit together: a cache that
// needs space takes that of the oldest ones that nobody uses.
//
// A process holds a shared lock (flock) on the file of each cache that it uses. The system takes
// the lock back however the process ends, so a file without a lock is not in use. The lock of the
// folder itself is held while space is divided. No torch.
#pragma once
#include <trireme/base/descriptor.h>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace trireme::data {

struct CacheFile {
  std::filesystem::path path;
  int64_t bytes = 0;  // On the disk.
  int64_t limit = 0;  // The most that it may become; for one in use.
  int64_t samples = 0, stored = 0;
  double used_at = 0;  // When it was opened last, as a Unix time.
  bool is_in_use = false;
};

// One thread. The lock of the folder is held as long as the object lives.
class CacheFolder {
 public:
  // Makes the folder if `make`. Throws Error(io) naming it: it cannot be used, is on a network
  // file system, or another process keeps its lock.
  explicit CacheFolder(const std::filesystem::path& folder, bool make = true);

  const std::filesystem::path& path() const { return path_; }
  // The caches in it, the one that was opened last first. Other files do not count.
  std::vector<CacheFile> files() const;
  // Removes the cache unless somebody uses it. Returns whether it did.
  bool remove(const CacheFile& file);
  // Removes all that nobody uses. Returns their bytes.
  int64_t clear();
  // The bytes of `wanted` that the cache of this file may take if all caches together may take
  // `limit`. Removes the oldest ones that are not in use for that.
  int64_t make_room(const std::filesystem::path& file, int64_t wanted, int64_t limit);
  // A quarter of the space that is free or that caches have.
  int64_t usual_limit() const;

 private:
  const std::filesystem::path path_;
  Descriptor folder_;
};

// The lock of a cache in use. Waits while another process looks whether it can remove the file.
// False: it did not get the lock.
bool lock_as_used(int descriptor);
// Whether another process uses the file of this descriptor; ends its own lock.
bool is_used_by_others(int descriptor);

}  // namespace trireme::data
