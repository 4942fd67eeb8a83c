// The loads of runs of blocks, and the search for the cut whose largest load is the smallest. For
// the files of partition.h.
#pragma once
#include <trireme/plan/partition.h>
#include <cstdint>
#include <span>
#include <vector>

namespace trireme::plan {

class PartitionLoads {
 public:
  // Throws Error(invalid_argument) naming block or part for a cost that is negative or too large.
  PartitionLoads(std::span<const BlockCost> blocks, PartitionMeasure measure, int parts,
                 std::span<const int> micro_batches_held);

  // The load of the blocks [from, to) in a part.
  int64_t of(int part, int from, int to) const;
  // Bytes that are sent where part of the chain begins at `block`, for each micro-batch.
  int64_t sent_before(int block) const { return sent_[static_cast<size_t>(block)]; }
  int blocks() const { return static_cast<int>(fixed_.size()) - 1; }
  int parts() const { return static_cast<int>(held_.size()); }

 private:
  // [block]: sums over all blocks before it, of what counts once and of what counts for each
  // micro-batch that is held.
  std::vector<int64_t> fixed_, held_bytes_;
  std::vector<int64_t> sent_, entry_;  // [block]
  std::vector<int64_t> held_;          // [part]
};

// The first blocks of the best cut (see partition()). There must be at least a block for each
// part.
std::vector<int> best_cut(const PartitionLoads& loads);

// The first blocks that a cut by hand names. Throws Error(invalid_argument) naming the entry.
std::vector<int> cut_by_hand(std::span<const BlockCost> blocks, std::string_view text);

}  // namespace trireme::plan
