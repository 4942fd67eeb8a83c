// An open file of a data set, and the marks by which a change of it is noticed.
#pragma once
#include <trireme/base/descriptor.h>
#include <trireme/records/damage.h>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

namespace trireme::records {

// Two files with the same identity have the same content, as far as can be told without reading
// all of it.
struct FileIdentity {
  std::string name;
  int64_t bytes = 0;
  // If it differs, the digest is compared. A file that was fetched from a server has a number of
  // all its bytes instead, which must not differ.
  int64_t mtime_ns = 0;
  std::string digest;  // XXH3 of the first and the last 64 KiB.
  bool operator==(const FileIdentity&) const = default;
};

// A file that is read and not mapped, so that a failing disk gives an error and not a signal. Any
// number of threads.
class DataFile {
 public:
  // Throws Damage: not_found, or io, also if `path` is not a regular file.
  explicit DataFile(const char* path);
  explicit DataFile(const std::filesystem::path& path) : DataFile(path.c_str()) {}
  // A regular file that is open already. `stamp` takes the place of its time.
  DataFile(Descriptor descriptor, int64_t stamp);
  uint64_t size() const { return size_; }
  int64_t mtime_ns() const { return mtime_ns_; }
  int descriptor() const { return descriptor_.get(); }
  // Fills `bytes` from `offset`. Throws Damage: corrupt if the file ends before, io if the system
  // refuses, also for a stale handle of NFS.
  void read(uint64_t offset, std::span<std::byte> bytes) const;
  // Reads the file's head and tail. The name is left empty.
  FileIdentity identity() const;

 private:
  void examine();
  Descriptor descriptor_;
  uint64_t size_ = 0;
  int64_t mtime_ns_ = 0;
};

// The Damage of a file that the system refuses to "open", "examine" or "read". `reason` is the
// errno.
Damage refused_by_system(std::string_view doing, int reason);

// The time of the newest change of a file in ns; 0 if there is no such file.
int64_t time_of_file(const std::filesystem::path& path);

// 32 hexadecimal digits of XXH3 (128 bits).
std::string digest_of(std::span<const std::byte> bytes);
std::string digest_of(std::string_view text);

}  // namespace trireme::records
