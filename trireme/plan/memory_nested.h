// Schedules in which a block may run forward several times. For the files of memory_plan.h.
#pragma once
#include <trireme/plan/memory_simulation.h>
#include <cstdint>
#include <optional>
#include <vector>

namespace trireme::plan {

constexpr size_t kMostNestedBlocks = 256;

// The fastest persistent schedule within the budget over discretised bytes, if there is one. The
// unit is a fraction of `keep_all_bytes`, and sizes are rounded up, so the budget is kept.
std::optional<std::vector<MemoryOperation>> fastest_nested(const MemoryChain& chain,
                                                           int64_t budget, int64_t keep_all_bytes);

// The persistent schedule with the lowest peak, in exact bytes.
struct LeastNested {
  int64_t bytes = 0;
  std::vector<MemoryOperation> operations;
};
LeastNested least_nested(const MemoryChain& chain);

}  // namespace trireme::plan
