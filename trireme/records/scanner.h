// The bytes of a file from front to back, for the making of an index.
#pragma once
#include <trireme/records/data_file.h>
#include <trireme/records/unpack.h>
#include <memory>
#include <vector>

namespace trireme::records {

// Views are valid until the next call. One thread.
class Scanner {
 public:
  // A record of more than the memory in `limits` is refused before memory is allocated for it.
  Scanner(std::shared_ptr<const DataFile> file, const UnpackLimits& limits);
  Scanner(std::shared_ptr<const Block> block, const UnpackLimits& limits);

  uint64_t size() const { return size_; }
  uint64_t memory_bytes() const { return static_cast<uint64_t>(limits_.memory_bytes); }
  const UnpackLimits& limits() const { return limits_; }
  // Throws Damage if the file ends before, or if there is not so much memory.
  std::span<const std::byte> at(uint64_t offset, uint64_t bytes);
  // The line that begins at `offset`, with its '\n' unless the file ends without one. Throws
  // Damage if there is not so much memory. `offset` is below size().
  std::string_view line(uint64_t offset);

 private:
  void fill(uint64_t offset, uint64_t bytes);

  std::shared_ptr<const DataFile> file_;
  std::shared_ptr<const Block> block_;
  uint64_t size_;
  UnpackLimits limits_;
  std::vector<std::byte> buffer_;
  std::span<const std::byte> window_;
  uint64_t window_at_ = 0;
};

}  // namespace trireme::records
