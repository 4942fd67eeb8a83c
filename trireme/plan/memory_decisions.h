// The search for a decision for each block. For the files of memory_plan.h.
#pragma once
#include <trireme/plan/memory_simulation.h>
#include <array>
#include <cstdint>
#include <optional>
#include <vector>

namespace trireme::plan {

using MemoryDecisions = std::vector<MemoryDecision>;
// [block][decision]: whether it may be taken.
using AllowedDecisions = std::vector<std::array<bool, 4>>;

struct MemorySchedule {
  MemoryDecisions decisions;
  std::vector<MemoryOperation> operations;
  MemoryUse use;
};

// The times of the copies of swapped blocks. [block]
struct SwapTimes {
  // Copies run beside the next block: out during its forward, in during its backward.
  static SwapTimes beside_next(size_t blocks);
  // Nothing else runs, so a copy needs no memory besides its own.
  static SwapTimes in_turn(size_t blocks);
  // The copy out has ended before the forward of this block; the number of blocks: before the
  // loss.
  std::vector<size_t> out_before;
  std::vector<size_t> in_from;  // The copy in begins before the backward of this block.
};
std::vector<MemoryOperation> operations_of(const MemoryDecisions& decisions,
                                           const SwapTimes& times);

struct DecisionCosts {
  double price = 1;                 // The fraction of its copies' time that a swapped byte costs.
  bool nothing_takes_time = false;  // All decisions cost the same.
  bool copies_take_turns = false;   // The times of copies: in_turn(), or beside_next().
};
// The fastest decisions within the budget, if there are any.
std::optional<MemoryDecisions> decide(const MemoryChain& chain, const AllowedDecisions& allowed,
                                      int64_t budget, const DecisionCosts& costs);
// The least budget for which there are decisions.
int64_t least_budget(const MemoryChain& chain, const AllowedDecisions& allowed);

// Simulates decisions. Their copies get as much time as the budget has memory for. Empty if they
// do not keep the budget.
std::optional<MemorySchedule> schedule(const MemoryChain& chain, const MemoryDecisions& decisions,
                                       int64_t budget);
// The fastest schedule that is found where blocks may be swapped.
std::optional<MemorySchedule> best_mix(const MemoryChain& chain, const AllowedDecisions& allowed,
                                       int64_t budget);

}  // namespace trireme::plan
