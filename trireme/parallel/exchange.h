// The seam of every data-parallel step: gradients go in, updated parameters come out. Each
// implementation decides how gradients are reduced, and where and in what order the update runs.
#pragma once
#include <ATen/core/Tensor.h>
#include <trireme/base/json.h>
#include <trireme/comm/group.h>
#include <trireme/parallel/compression/compressor.h>
#include <trireme/parallel/module_state.h>
#include <trireme/parallel/parameter_changes.h>
#include <trireme/parallel/shared/update_guard.h>
#include <trireme/plan/data_parallel_plan.h>
#include <trireme/tensor/cpu_allocator.h>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace trireme {

// The input of one replica to a step besides its gradients.
struct Contribution {
  double loss_sum = 0;  // The sum over its samples: mean loss x samples.
  int64_t samples = 0;  // A replica with 0 samples contributes nothing.
  // The samples of all replicas, if known: gradients are then already weighted by 1 / total. With
  // 0 (unknown) gradients are sums.
  int64_t total_samples = 0;
  bool wants_stop = false;
  bool wants_regroup = false;
  // The factor by which gradients are too large (loss scaling); the same on all ranks.
  double gradient_scale = 1;
  // A change that this rank found. If there is one, no rank updates and all ranks throw.
  ParameterChange change;
  // A hash of the optimizer's groups. If it is not the same on all ranks, all ranks throw.
  uint64_t groups = 0;
};

// The result of a step, the same on all replicas except for what this rank sent and updated and,
// in local steps, gradient_norm.
struct StepOutcome {
  double loss = 0;  // The mean over all samples.
  int64_t samples = 0;
  double gradient_norm = -1;  // The norm before clipping; negative if it was not computed.
  bool stop = false;          // Some replica wants to stop after this step.
  bool regroup = false;  // Some replica knows that the members of the job change after this step.
  // Replicas whose loss was NaN or infinite. If there are any, nothing was updated.
  std::vector<int> nonfinite_ranks;
  // The gradient norm was NaN or infinite, and nothing was updated. Known only if the norm is
  // computed, or with compression.
  bool nonfinite_gradients = false;
  bool updated = false;
  std::vector<int> unused;  // Trainable parameters for which no replica had a gradient.
  // The engine fills in the next two: the operations of the step in which this rank took part, and
  // the bytes that it sent in them (Group::traffic).
  int64_t operations = 0;
  int64_t bytes_sent = 0;
  int64_t updated_elements = 0;  // The elements of parameters that this rank updated.
};

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
  // The tensors that this rank keeps between steps (errors of compression), by name. Checkpoints
  // save them, and a resumed run fills them in place.
  virtual std::vector<NamedTensor> state() { return {}; }
  // The counters that the exchange keeps between steps, the same on every rank; for checkpoints.
  virtual Json counters() const { return Json::object(); }
  virtual void load_counters(const Json&) {}
  // The memory in which backward should put its gradients, or null if any will do.
  virtual std::shared_ptr<AllocationSource> gradient_memory() { return nullptr; }
  // Announces that the next backward leaves the gradients of the step, so that they may travel
  // while it runs. `gradient_scale` is the one that the step's Contribution will have.
  virtual void expect_last_backward(double gradient_scale) { (void)gradient_scale; }
  // Whether the replicas of a host have one copy of the parameters.
  virtual bool shares_parameters() const { return false; }
  // COLLECTIVE if shares_parameters(). Makes all replicas' parameters rank 0's, after rank 0 has
  // changed or loaded them.
  virtual void sync_parameters() {}
  // Looks for changes that user code made to shared parameters, in all that this rank watches. The
  // other ranks must not update parameters meanwhile.
  virtual ParameterChange find_change() const { return {}; }
  // True after an error of exchange() if parameters and state may belong to no step at all.
  virtual bool is_torn() const { return false; }
  // COLLECTIVE. Makes the parameters of all replicas equal again if they may differ between steps
  // (local_sgd.h).
  virtual void synchronise() {}
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
