#include <fmt/format.h>

#include <trireme/base/error.h>
#include <trireme/base/hash.h>
#include <trireme/plan/block_sizes.h>
#include <algorithm>

namespace trireme::plan {
namespace {

// Records have the sizes as runs of equal ones, if there are no more runs than this.
constexpr size_t kMostRunsInRecords = 256;
// A limit, so that a damaged record cannot fill the memory.
constexpr int64_t kMostBlocksInRecords = 1 << 24;

[[noreturn]] void refuse_blocks(const std::string& what) {
  throw Error(ErrorCode::invalid_argument, "plan", what,
              "the sizes as the reader of the files "
              "gives them");
}

// Pairs of a size and the number of blocks in a row that have it.
std::vector<std::pair<int64_t, int64_t>> runs_of(const std::vector<int64_t>& starts) {
  std::vector<std::pair<int64_t, int64_t>> runs;
  for (size_t block = 0; block + 1 < starts.size(); ++block) {
    const int64_t size = starts[block + 1] - starts[block];
    if (!runs.empty() && runs.back().first == size)
      ++runs.back().second;
    else
      runs.emplace_back(size, 1);
  }
  return runs;
}

}  // namespace

BlockSizes::BlockSizes(const std::vector<int64_t>& sizes)
    : count_(static_cast<int64_t>(sizes.size())) {
  starts_.reserve(sizes.size() + 1);
  starts_.push_back(0);
  uint64_t digest = 0;
  for (size_t block = 0; block < sizes.size(); ++block) {
    const int64_t size = sizes[block];
    if (size < 0 || size > INT64_MAX - samples_)
      refuse_blocks(fmt::format("block {} has {} samples", block, size));
    samples_ += size;
    starts_.push_back(samples_);
    digest = mix64(digest, static_cast<uint64_t>(size));
  }
  digest_ = fmt::format("{:016x}", digest);
}

Json BlockSizes::to_json() const {
  Json json = {{"count", count_}, {"samples", samples_}, {"digest", digest_}};
  const auto runs = runs_of(starts_);
  if (has_sizes() && runs.size() <= kMostRunsInRecords) json["sizes"] = runs;
  return json;
}

BlockSizes BlockSizes::from_json(const Json& json) {
  BlockSizes blocks;
  blocks.count_ = json.at("count").get<int64_t>();
  blocks.samples_ = json.at("samples").get<int64_t>();
  blocks.digest_ = json.at("digest").get<std::string>();
  if (!json.contains("sizes")) return blocks;
  std::vector<int64_t> sizes;
  for (const Json& run : json["sizes"]) {
    const auto count = run.at(1).get<int64_t>();
    if (count < 0 || count > kMostBlocksInRecords - std::ssize(sizes))
      refuse_blocks(fmt::format("a record of {} blocks in a row", count));
    sizes.insert(sizes.end(), static_cast<size_t>(count), run.at(0).get<int64_t>());
  }
  BlockSizes read(sizes);
  if (read.count_ != blocks.count_ || read.samples_ != blocks.samples_ ||
      read.digest_ != blocks.digest_)
    refuse_blocks("a record of blocks whose sizes do not have its digest");
  return read;
}

DataBlocks data_blocks(const std::vector<int64_t>& sizes) {
  return std::make_shared<const BlockSizes>(sizes);
}

}  // namespace trireme::plan
