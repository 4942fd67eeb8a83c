// Follows a CollectivePlan on symbols: which ranks' contributions each rank holds of each chunk,
// round by round. What the checker proves and the printer draws. Internal to plan/.
#pragma once
#include <trireme/plan/collective_plan.h>
#include <cstdint>
#include <vector>

namespace trireme::plan {

// The value of one chunk on one rank.
struct Held {
  std::vector<bool> contributors;  // [rank]: whether its original chunk is part of the sum.
  int count = 0;                   // Of contributors; 0: nothing that the collective may use.
  // Digest of the tree of additions: equal digests are equal bits. a + b and b + a have one digest,
  // and what is rounded between two additions (to float16, say) has another than what is not.
  uint64_t tree = 0;
};

class Holdings {
 public:
  // What the ranks hold before the first round.
  explicit Holdings(const CollectivePlan& plan);

  const Held& at(int rank, int chunk) const {
    return held_[static_cast<size_t>(rank)][static_cast<size_t>(chunk)];
  }
  bool done(int rank, int chunk) const { return at(rank, chunk).count == contributions_; }

  // Executes round number `round`, all ranks at once. Throws Error(internal) naming round, rank and
  // chunk where a rank reads a chunk that its source does not have yet, or adds a contribution that
  // is in the sum already.
  void apply(int round);

 private:
  const CollectivePlan& plan_;
  int contributions_;                    // In a finished chunk.
  std::vector<std::vector<Held>> held_;  // [rank][chunk]
};

}  // namespace trireme::plan
