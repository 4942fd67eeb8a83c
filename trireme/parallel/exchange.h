// The seam of every data-parallel step: gradients go in, updated parameters come out. Each
// implementation decides how gradients are reduced, and where and in what order the update runs.
#pragma once
#include <ATen/core/Tensor.h>
#include <trireme/base/json.h>
#include <trireme/comm/group.h>
#include <trireme/parallel/compression/compressor.h>
#include <trireme/parallel/data_parallel_options.h>
#include <trireme/parallel/module_state.h>
#include <trireme/parallel/shared/update_guard.h>
#include <trireme/parallel/state_view.h>
#include <trireme/parallel/step_outcome.h>
#include <trireme/plan/data_parallel_plan.h>
#include <trireme/tensor/cpu_allocator.h>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace trireme {

// Applies the reduced gradients (each parameter's .grad) to the listed parameters, given by index.
// A parameter with an undefined .grad had no gradient on any replica. The update skips it, as
// torch::optim does.
using Update = std::function<void(std::span<const int> parameters)>;

class Exchange {
 public:
  virtual ~Exchange() = default;
  // COLLECTIVE. Reduces every parameter's .grad over the replicas and calls `update`. Leaves
  // .grad undefined.
  virtual StepOutcome exchange(const Contribution& mine, const Update& update) = 0;
  // The tensors that the exchange keeps between steps (errors of compression). Checkpoints save
  // them, and a resumed run fills them in place.
  virtual StateView state() { return {}; }
  // The counters that the exchange keeps between steps, the same on every rank; for checkpoints.
  virtual Json counters() const { return Json::object(); }
  virtual void load_counters(const Json&) {}
  // The memory in which backward should put its gradients, or null if any will do.
  virtual std::shared_ptr<AllocationSource> gradient_memory() { return nullptr; }
  // Announces that the next backward leaves the gradients of the step, so that they may travel
  // while it runs. `gradient_scale` is the one that the step's Contribution will have.
  virtual void expect_last_backward(double gradient_scale) { (void)gradient_scale; }
  // For loops that update themselves (own_steps.h). COLLECTIVE. Reduces every parameter's .grad,
  // in which this rank has the mean over mine.samples samples, and leaves the mean over the
  // samples of all ranks there. Throws Error(unsupported) unless the exchange is that of
  // make_all_reduce_exchange() or make_host_means().
  virtual StepOutcome leave_means(const Contribution& mine);
  // Whether the gradients of the next backward go into leave_means(), so that they may travel
  // while it runs.
  virtual void expect_backward(bool expected) { (void)expected; }
};

struct ExchangeOptions {
  double clip_norm = 0;    // Gradients are scaled down to this global L2 norm; 0 means never.
  bool want_norm = false;  // Compute the norm also without clipping.
  CompressionOptions compression;
  // Called before the update, with the same values on every rank, once loss and gradient norm
  // (negative: not computed) are known. If it returns false, nothing is updated. It must return
  // the same on every rank. An empty function accepts every step.
  std::function<bool(double loss, double gradient_norm)> accept;
  shared::UpdateGuardOptions guard;  // Guards the update of memory that replicas share.
  OffloadOptions offload;            // Applies to that memory.
  // Called when a pass over all gradients is done with one of them. May be empty.
  std::function<void(const at::Tensor& gradient)> gradient_used;
  // With leave_means(): the factor of this rank's gradients now. If Contribution::total_samples is
  // given, those of all ranks add up to 1, unless some have no samples; the sum is then divided by
  // what the others add up to.
  std::function<double()> weight;
};

// Plans the engine for an order in which gradients become ready; empty before the first step. The
// result is the same on every rank.
using Planner = std::function<plan::EnginePlan(std::span<const int> ready_order)>;

// All-reduces gradients in flat buckets, then updates on every replica. Works with every optimizer
// and every backend. `plan` holds until the first step has shown the order of gradients, if it
// follows that order.
std::unique_ptr<Exchange> make_all_reduce_exchange(std::shared_ptr<Group> group,
                                                   std::vector<NamedTensor> parameters,
                                                   plan::EnginePlan plan, Planner planner,
                                                   ExchangeOptions options);

}  // namespace trireme
