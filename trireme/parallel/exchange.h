// The seam of every data-parallel step: gradients go in, updated parameters come out. How gradients
// are reduced, where the update runs and in what order is one implementation's business.
#pragma once
#include <ATen/core/Tensor.h>
#include <trireme/base/json.h>
#include <trireme/comm/group.h>
#include <trireme/parallel/compression/compressor.h>
#include <trireme/parallel/module_state.h>
#include <trireme/parallel/parameter_changes.h>
#include <trireme/parallel/shared/update_guard.h>
#include <trireme/plan/bucket_plan.h>
#include <trireme/tensor/cpu_allocator.h>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace trireme {

// What one replica brings to a step besides its gradients.
struct Contribution {
  double loss_sum = 0;        // Sum over its samples (mean loss x samples).
  int64_t samples = 0;        // 0: contributes nothing.
  int64_t total_samples = 0;  // Of all replicas, if known: gradients are then already weighted by 1
                              // / total. 0: unknown, gradients are sums.
  bool wants_stop = false;
  bool wants_regroup = false;
  double gradient_scale =
      1;  // Gradients are so many times too large (loss scaling); the same on all ranks.
  ParameterChange change;  // One that this rank found; then no rank updates, and all throw.
};

// What all replicas know alike after a step.
struct StepOutcome {
  double loss = 0;  // Mean over all samples.
  int64_t samples = 0;
  double gradient_norm = -1;  // Before clipping; negative if it was not computed.
  bool stop = false;          // Some replica wants to stop after this step.
  bool regroup = false;  // Some replica knows that the members of the job change after this step.
  std::vector<int>
      nonfinite_ranks;  // Replicas whose loss was NaN or infinite. If any, nothing was updated.
  bool nonfinite_gradients = false;  // The gradient norm was NaN or infinite; nothing was updated.
                                     // Known only where the norm is computed, or with compression.
  bool updated = false;
  std::vector<int> unused;  // Trainable parameters for which no replica had a gradient.
  int64_t bytes_sent = 0;   // By this rank for this step, as its algorithm counts; a plain
                            // all-reduce of n ranks: 2 (n-1)/n of the gradients.
};

// Applies the reduced gradients (each parameter's .grad) to the parameters listed, by their
// indices. Parameters whose .grad is undefined had no gradient on any replica and are left alone,
// as torch::optim does.
using Update = std::function<void(std::span<const int> parameters)>;

class Exchange {
 public:
  virtual ~Exchange() = default;
  // COLLECTIVE. Reduces every parameter's .grad over the replicas and calls `update`. Leaves .grad
  // undefined.
  virtual StepOutcome exchange(const Contribution& mine, const Update& update) = 0;
  // What this rank keeps between steps (errors of compression), by name: for checkpoints, and to be
  // filled from one.
  virtual std::vector<NamedTensor> state() { return {}; }
  // Where it stands, the same on every rank; likewise.
  virtual Json counters() const { return Json::object(); }
  virtual void load_counters(const Json&) {}
  // Where backward should put its gradients; null: anywhere.
  virtual std::shared_ptr<AllocationSource> gradient_memory() { return nullptr; }
  // The gradients that the next backward leaves are those of the step: they may travel while it
  // runs. `gradient_scale`: as the step's Contribution will have it.
  virtual void expect_last_backward(double gradient_scale) { (void)gradient_scale; }
  // The replicas of a host have one copy of the parameters; then sync_parameters() is COLLECTIVE
  // and makes all replicas' parameters rank 0's, after rank 0 has changed or loaded them.
  virtual bool shares_parameters() const { return false; }
  virtual void sync_parameters() {}
  // After an error of exchange(): parameters and state may be of no step at all.
  virtual bool is_torn() const { return false; }
  // COLLECTIVE. Makes the parameters of all replicas equal where they may differ between steps
  // (local_sgd.h). Returns the bytes that this rank sent.
  virtual int64_t synchronise() { return 0; }
};

struct ExchangeOptions {
  double clip_norm = 0;    // Gradients are scaled down to this global L2 norm; 0: never.
  bool want_norm = false;  // Compute the norm also without clipping.
  plan::BucketOptions buckets;
  CompressionOptions compression;
  // Asked on every rank with the same values once loss and gradient norm (negative: not computed)
  // are known, before the update; where it says no, nothing is updated. It must answer the same on
  // every rank. Empty: always yes.
  std::function<bool(double loss, double gradient_norm)> accept;
  shared::UpdateGuardOptions guard;  // Of memory that replicas share.
};

// All-reduce into flat buckets, then the update on every replica. Works with every optimizer and
// every carrier.
std::unique_ptr<Exchange> make_all_reduce_exchange(std::shared_ptr<Group> group,
                                                   std::vector<NamedTensor> parameters,
                                                   ExchangeOptions options);

}  // namespace trireme
