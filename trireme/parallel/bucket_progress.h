// Tracks which gradients, and which buckets, of a step are complete while backward runs.
#pragma once
#include <trireme/parallel/module_state.h>
#include <trireme/plan/bucket_plan.h>
#include <span>
#include <vector>

namespace trireme {

class BucketProgress {
 public:
  // `plan` and `parameters` must outlive the object.
  BucketProgress(const plan::BucketPlan& plan, const std::vector<NamedTensor>& parameters);

  // Throws Error(unsupported) if this parameter was already ready in this step: its first gradient
  // may have been sent.
  void ready(int parameter);
  bool is_ready(int parameter) const { return is_ready_[static_cast<size_t>(parameter)]; }
  bool is_complete(size_t bucket) const { return missing_[bucket] == 0; }
  // The parameters in the order in which they became ready.
  std::span<const int> order() const { return order_; }
  void next_step();

 private:
  const plan::BucketPlan& plan_;
  const std::vector<NamedTensor>& parameters_;
  std::vector<size_t> bucket_of_;
  std::vector<bool> is_ready_;
  std::vector<int> missing_;  // By bucket: the number of gradients that are not ready.
  std::vector<int> order_;
};

}  // namespace trireme
