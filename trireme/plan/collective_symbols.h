// Follows a CollectivePlan on symbols: it knows, round by round, which ranks' contributions each
// rank holds of each chunk. The checker proves plans with it, and the printer draws them. Internal
// to plan/.
#pragma once
#include <trireme/plan/collective_plan.h>
#include <cstdint>
#include <vector>

namespace trireme::plan {

// The value of one chunk on one rank.
struct Held {
  std::vector<bool> contributors;  // [rank]: whether its original chunk is part of the sum.
  int count = 0;  // The number of contributors. At 0 the collective may not use the chunk.
  // A digest of the tree of additions: equal digests mean equal bits. a + b and b + a have the
  // same digest. A sum that is rounded between two additions (to float16, say) has another digest
  // than a sum that is not.
  uint64_t tree = 0;
};

class Holdings {
 public:
  // Starts with the values that the ranks hold before the first round.
  explicit Holdings(const CollectivePlan& plan);

  const Held& at(int rank, int chunk) const {
    return held_[static_cast<size_t>(rank)][static_cast<size_t>(chunk)];
  }
  bool done(int rank, int chunk) const { return at(rank, chunk).count == contributions_; }

  // Executes the round of this number, for all ranks at once. Throws Error(internal) naming round,
  // rank and chunk if a rank reads a chunk that its source does not have yet, or adds a
  // contribution that is in the sum already.
  void apply(int round);

 private:
  const CollectivePlan& plan_;
  int contributions_;                    // The number of contributions in a finished chunk.
  std::vector<std::vector<Held>> held_;  // [rank][chunk]
};

}  // namespace trireme::plan
