// Which gradients of a step are complete while backward runs, and which buckets.
#pragma once
#include <trireme/parallel/module_state.h>
#include <trireme/plan/bucket_plan.h>
#include <span>
#include <vector>

namespace trireme {

class BucketProgress {
 public:
  // Both must outlive it.
  BucketProgress(const plan::BucketPlan& plan, const std::vector<NamedTensor>& parameters);

  // Throws Error(unsupported) if this parameter was ready in this step before: its first gradient
  // may be on its way.
  void ready(int parameter);
  bool is_ready(int parameter) const { return is_ready_[static_cast<size_t>(parameter)]; }
  bool is_complete(size_t bucket) const { return missing_[bucket] == 0; }
  std::span<const int> order() const { return order_; }  // Parameters, as they became ready.
  void next_step();

 private:
  const plan::BucketPlan& plan_;
  const std::vector<NamedTensor>& parameters_;
  std::vector<size_t> bucket_of_;
  std::vector<bool> is_ready_;
  std::vector<int> missing_;  // By bucket: gradients that are not ready.
  std::vector<int> order_;
};

}  // namespace trireme
