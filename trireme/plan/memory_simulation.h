// Runs the operations of a MemoryPlan on paper. For the files of memory_plan.h.
#pragma once
#include <trireme/plan/memory_plan.h>
#include <cstdint>
#include <span>
#include <vector>

namespace trireme::plan {

struct MemoryChain {
  MemoryChain(std::span<const BlockMemory> given, const MemoryPlanOptions& options);

  size_t size() const { return blocks.size(); }
  const BlockMemory& block(size_t i) const { return blocks[i]; }
  // The bytes that autograd saves for a block, and those that swapping or compressing it moves.
  int64_t saved(size_t i) const;
  int64_t moved(size_t i) const;
  // Whether the input of a block is large enough to be moved.
  bool moves(size_t i) const { return x[i] >= options.least_moved_bytes; }
  int64_t compressed(size_t i) const;
  double seconds() const;  // The time of every forward and backward once.

  std::span<const BlockMemory> blocks;
  const MemoryPlanOptions& options;
  std::vector<int64_t> x;  // [block]: its input; the last entry is the chain's output.
  std::vector<int64_t> g;  // The gradients of these, as far as they count.
};

struct MemoryUse {
  int64_t peak_bytes = 0;
  double seconds = 0, waiting_seconds = 0;
};
// Throws Error(internal) naming the operation that lacks what it needs.
MemoryUse simulate(const MemoryChain& chain, std::span<const MemoryOperation> operations);

}  // namespace trireme::plan
