// Runs a PreparedPlan between ranks that can read each other's tensors; no torch.
#pragma once
#include <trireme/comm/prepared_plan.h>
#include <trireme/comm/threads/reduce_kernel.h>
#include <functional>
#include <span>
#include <vector>

namespace trireme::comm {

// The runner of one rank; used by one thread at a time.
//
// Chunks are cut into pieces of at most `piece_bytes`. The whole plan runs on piece 0 of each
// chunk, then on piece 1, and so on: the result of one round is still in cache when the next round
// reads it. The chunk of an element does not depend on the pieces, so neither do the bits of a
// sum. In a round that overwrites values which others read, the new values of a piece wait in a
// buffer of this rank.
class PlanRunner {
 public:
  PlanRunner(int rank, int64_t piece_bytes) : rank_(rank), piece_bytes_(piece_bytes) {}

  // COLLECTIVE. tensors[r] is the start of rank r's tensor; all ranks have arrived and found their
  // calls equal. `barrier` returns when all ranks have called it. When run() returns, no rank
  // reads this rank's tensor any more; if `barrier` throws, others may still read it.
  void run(const PreparedPlan& prepared, std::span<void* const> tensors, int64_t elements,
           plan::DType dtype, Fold fold, const std::function<void()>& barrier);

 private:
  struct Tensors;
  struct Piece;
  using Receives = std::vector<plan::Transfer>;
  void fold_in_place(const Tensors& tensors, const Receives& receives, int64_t number);
  void fold_aside(const Tensors& tensors, const Receives& receives, int64_t number);
  void copy_back(const Tensors& tensors, const Receives& receives, int64_t number);
  void fold_into(std::byte* target, const Tensors& tensors, const Piece& piece,
                 std::span<const int> sources);

  int rank_;
  int64_t piece_bytes_;
  std::vector<std::byte> aside_;
  std::vector<const void*> sources_;
};

}  // namespace trireme::comm
