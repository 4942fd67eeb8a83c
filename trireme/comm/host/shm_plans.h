// Runs any CollectivePlan between ranks of one host that share memory. PlanRunner works on slices
// that each rank lays out in its staging memory, or on the tensors themselves if all ranks can
// access them.
#pragma once
#include <trireme/comm/host/shm_staging.h>
#include <trireme/comm/threads/plan_runner.h>
#include <span>
#include <vector>

namespace trireme::comm {

// Chunks [first, last) of a plan's tensor, one after another from `data` on.
struct ChunkRun {
  std::byte* data = nullptr;
  int first = 0, last = 0;
};

// The plans of one rank; one thread at a time. Both operations are COLLECTIVE and compare
// `intent`, whose elements are those of the plan's whole tensor.
class ShmPlans {
 public:
  explicit ShmPlans(ShmStaging& staging)
      : staging_(staging), runner_(staging.rank(), ShmStaging::kHalfBytes) {}

  // Works on slices; a slice holds the next few elements of every chunk. `laid` is the input of
  // this rank, and `taken` is the place for its part of the result; both may be the same memory.
  void run_staged(const PreparedPlan& prepared, const ChunkRun& laid, const ChunkRun& taken,
                  plan::DType dtype, Fold fold, const Intent& intent);
  // places[r] is the start of rank r's tensor.
  void run_in_place(const PreparedPlan& prepared, std::span<std::byte* const> places,
                    plan::DType dtype, Fold fold, const Intent& intent);

 private:
  void run(const PreparedPlan& prepared, int64_t elements, plan::DType dtype, Fold fold,
           const Intent& intent);

  ShmStaging& staging_;
  PlanRunner runner_;
  std::vector<void*> tensors_;  // By rank, for the collective in progress.
};

}  // namespace trireme::comm
