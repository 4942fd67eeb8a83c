// Runs any CollectivePlan between ranks of one host that share memory: by PlanRunner, on slices
// that each rank lays out in its staging memory, or on the tensors themselves where all ranks reach
// them.
#pragma once
#include <trireme/comm/host/shm_staging.h>
#include <trireme/comm/threads/plan_runner.h>
#include <span>
#include <vector>

namespace trireme::comm {

// Chunks [first, last) of a plan's tensor, which lie one after another from `data` on.
struct ChunkRun {
  std::byte* data = nullptr;
  int first = 0, last = 0;
};

// One rank's; one thread at a time. Both operations are COLLECTIVE and compare `intent`, whose
// elements are the plan's whole tensor.
class ShmPlans {
 public:
  explicit ShmPlans(ShmStaging& staging)
      : staging_(staging), runner_(staging.rank(), ShmStaging::kHalfBytes) {}

  // A slice holds the next few elements of every chunk. `laid`: what this rank brings; `taken`:
  // where what it wants of the outcome goes, which may be the same memory.
  void run_staged(const PreparedPlan& prepared, const ChunkRun& laid, const ChunkRun& taken,
                  plan::DType dtype, Fold fold, const Intent& intent);
  // places[r]: where rank r's tensor lies.
  void run_in_place(const PreparedPlan& prepared, std::span<std::byte* const> places,
                    plan::DType dtype, Fold fold, const Intent& intent);

 private:
  void run(const PreparedPlan& prepared, int64_t elements, plan::DType dtype, Fold fold,
           const Intent& intent);

  ShmStaging& staging_;
  PlanRunner runner_;
  std::vector<void*> tensors_;  // By rank, in the collective under way.
};

}  // namespace trireme::comm
