// A file of memory that was swapped out. It has no name, so it vanishes with the process, however
// that ends.
#pragma once
#include <trireme/base/descriptor.h>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>

namespace trireme {

// The unit of regions, and the alignment that O_DIRECT asks of memory and of places in a file.
inline constexpr int64_t kSwapBlock = 4096;
inline int64_t swap_bytes(int64_t bytes) {
  return (bytes + kSwapBlock - 1) / kSwapBlock * kSwapBlock;
}

struct FreeAligned {
  void operator()(std::byte* memory) const;
};
using AlignedBytes = std::unique_ptr<std::byte, FreeAligned>;
// Memory for swap_bytes(bytes), aligned for O_DIRECT.
AlignedBytes aligned_bytes(int64_t bytes);

// Bytes bypass the page cache where the file system has O_DIRECT. Elsewhere they are written, and
// the cache is told to forget them. Used by one thread at a time, but read() may run beside other
// calls. Every error is an Error(io) that names the folder, the bytes wanted and the system's
// reason.
class SwapFile {
 public:
  explicit SwapFile(const std::string& folder);

  // Returns the place of a region for so many bytes. The space is on the disk from then on.
  int64_t take(int64_t bytes);
  void give_back(int64_t place, int64_t bytes);
  void write(int64_t place, const std::byte* data, int64_t bytes);
  // `data` is from aligned_bytes(bytes).
  void read(int64_t place, std::byte* data, int64_t bytes);

  bool is_direct() const { return is_direct_; }
  int64_t size() const { return size_; }

 private:
  bool can_be_direct();
  int64_t grow(int64_t bytes);
  [[noreturn]] void refuse(const std::string& what, int error) const;

  std::string folder_;
  Descriptor file_;
  bool is_direct_ = false;
  int64_t size_ = 0;
  std::map<int64_t, int64_t> free_;  // [place]: bytes. Neighbours are joined.
  AlignedBytes bounce_;              // For memory that is not aligned.
};

}  // namespace trireme
