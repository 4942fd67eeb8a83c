// The sizes of blocks: runs of samples that are best read as a whole and in order, such as shards
// and row groups. Pure.
#pragma once
#include <trireme/base/json.h>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace trireme::plan {

class BlockSizes {
 public:
  // In the order of the data. Throws Error(invalid_argument) naming a size below 0.
  explicit BlockSizes(const std::vector<int64_t>& sizes);

  int64_t count() const { return count_; }
  int64_t samples() const { return samples_; }
  // [block]: its first sample; the last entry is samples(). Empty if the sizes are not known.
  const std::vector<int64_t>& starts() const { return starts_; }
  // False for a value from a log that names only the digest.
  bool has_sizes() const { return !starts_.empty(); }
  // 16 hexadecimal digits, which differ if the sizes do.
  const std::string& digest() const { return digest_; }

  // With the sizes if these are few or mostly equal, else with their digest alone.
  Json to_json() const;
  // Throws Error(invalid_argument) for a value that to_json() cannot have made.
  static BlockSizes from_json(const Json& json);

 private:
  BlockSizes() = default;
  int64_t count_ = 0, samples_ = 0;
  std::vector<int64_t> starts_;
  std::string digest_;
};

using DataBlocks = std::shared_ptr<const BlockSizes>;
DataBlocks data_blocks(const std::vector<int64_t>& sizes);

}  // namespace trireme::plan
