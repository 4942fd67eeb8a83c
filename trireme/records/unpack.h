// Files that are compressed as a whole, by gzip or zstd.
#pragma once
#include <trireme/records/data_file.h>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace trireme::records {

enum class Packing { none, gzip, zstd };
// The ends of names of files that are not packed, or packed by gzip or zstd.
inline constexpr std::string_view kPackedEnds[] = {"", ".gz", ".zst"};
// The name without such an end.
std::string_view unpacked_name(std::string_view name);

struct UnpackLimits {
  int64_t memory_bytes = int64_t{1} << 30;
  // The most bytes that a compressed byte may become, of data or of its index. It counts from
  // 16 MiB on.
  int64_t max_ratio = 250;
  // The name of max_ratio in messages; empty: it is no option.
  std::string ratio_name = "max_ratio";
  // The remedy for too little of memory_bytes, and what that is.
  std::string remedy_of_memory = "a larger memory_bytes";
  std::string memory_means = "the memory for a block";
  // The part of memory_bytes that other unpacked files have, which stay in memory with this one.
  int64_t taken_bytes = 0;

  // The limits for a file whose content is in memory as a whole: the ratio, and the memory that is
  // free now.
  static UnpackLimits of_whole_file(int64_t max_ratio = 250, std::string ratio_name = {});

  // Throws Damage if a record, or what is read at once, has more bytes than memory_bytes.
  void require_memory(uint64_t bytes) const;
  // Whether `packed` bytes may not become `bytes`, by the ratio.
  bool exceeds_ratio(uint64_t packed, uint64_t bytes) const;
  std::string remedy_of_ratio() const;
};

// Bytes that are made once and then only read. Memory comes from the system as it is, without
// zeros.
class Block {
 public:
  Block() = default;
  ~Block() { free_memory(); }
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;

  std::span<const std::byte> bytes() const { return {memory_, size_}; }
  // The memory behind the bytes, at least `more` bytes.
  std::span<std::byte> room(size_t more);
  void add(size_t bytes) { size_ += bytes; }
  // Gives back the memory behind the bytes.
  void shrink();

 private:
  void free_memory();
  // Pages of its own, so that the memory of a large block goes back to the system when the block
  // is forgotten: a heap may keep what was freed. Small blocks would need too many maps of pages.
  bool has_pages_ = false;
  std::byte* memory_ = nullptr;
  size_t size_ = 0, capacity_ = 0;
};

// The packing that the first bytes of the file tell.
Packing packing_of(const DataFile& file);
// Throws Damage: corrupt if the data is damaged, cut, or grows beyond a limit.
std::shared_ptr<const Block> unpack(const DataFile& file, Packing packing,
                                    const UnpackLimits& limits);
// The content of a file, which is unpacked if it is packed. Throws Error naming the file.
std::string read_unpacked(const std::filesystem::path& file, const UnpackLimits& limits);

}  // namespace trireme::records
