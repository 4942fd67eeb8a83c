// Runs a PreparedPlan between ranks that can read each other's tensors. No torch.
#pragma once
#include <trireme/comm/prepared_plan.h>
#include <trireme/comm/threads/reduce_kernel.h>
#include <functional>
#include <span>
#include <vector>

namespace trireme::comm {

// One rank's; used by one thread at a time.
//
// Chunks are cut into pieces of at most `piece_bytes`, and the whole plan runs on piece 0 of each
// chunk, then on piece 1, ...: what one round leaves is still in cache when the next reads it.
// Which chunk an element belongs to does not depend on the pieces, and so neither do the bits of a
// sum. Where a round overwrites what others read in it, new values of a piece wait in a buffer of
// this rank's.
class PlanRunner {
 public:
  PlanRunner(int rank, int64_t piece_bytes) : rank_(rank), piece_bytes_(piece_bytes) {}

  // COLLECTIVE. tensors[r]: where rank r's tensor begins; all ranks have arrived and found their
  // calls alike. `barrier` returns when all ranks have called it. When run() returns, nobody reads
  // this rank's tensor any more; if `barrier` throws, others may still do.
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
