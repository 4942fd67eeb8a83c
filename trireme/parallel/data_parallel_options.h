// The options of a data-parallel step. The Trainer fills them in for every strategy.
#pragma once
#include <trireme/parallel/grad_scaler.h>
#include <trireme/parallel/shared/update_guard.h>
#include <trireme/plan/bucket_plan.h>
#include <trireme/plan/data_parallel_plan.h>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace trireme {

// Optimizer state, or state and parameters, in files of a folder (shared/model_memory.h). The
// optimizer must be one of SGD, Adam, AdamW, RMSprop, Adagrad, Lars and Lamb.
struct OffloadOptions {
  bool optimizer = false;   // State.
  bool parameters = false;  // Parameters too; then `optimizer` is true.
  std::string folder;

  std::string_view name() const {
    return parameters ? "parameters" : optimizer ? "optimizer" : "none";
  }
};

struct DataParallelOptions {
  double clip_norm = 0;        // The largest global L2 norm; 0 means no clipping.
  bool gradient_norm = false;  // Report the norm in every StepOutcome.
  // All replicas of a host use one copy of parameters and optimizer state
  // (shared/shared_exchange.h). This needs an optimizer that is one of SGD, Adam, AdamW, RMSprop,
  // Adagrad, Lars and Lamb, a backend that shares memory, and trainable parameters of float32 or
  // float64 (or masters). No parameter may have memory in common with another one or with a
  // buffer. Otherwise the option does nothing. Code must then write parameters inside
  // modify_parameters().
  bool share_parameters = false;
  // Guards the update of shared parameters: if a rank dies in an update, the other ranks of its
  // host finish it (shared/update_guard.h). The guard costs a copy of all memory that the
  // update writes. Optimizers whose step depends on whole layers (Lars, Lamb) then keep a copy
  // for each replica.
  shared::UpdateGuardOptions guard;
  OffloadOptions offload;
  plan::BucketOptions buckets;
  plan::CompressionOptions compression;
  plan::LocalSgdOptions local;  // Replicas may take several steps apart.
  // Above 0, each global batch is cut into so many pieces, each computed apart, and any number
  // of replicas ends with the same bits (reproducible_exchange.h). Each replica computes the
  // pieces of shards(). This excludes compression, local steps and closures, and parameters
  // are not shared.
  int virtual_shards = 0;
  // A step whose loss is NaN or infinite on some rank, or whose gradients are known to be so,
  // updates nothing. In a loop of the user's own it is an error besides; with this option it is a
  // warning (StepOutcome::nonfinite_ranks).
  bool skip_nonfinite = false;
  // A loop of the user's own trains tensors that no engine has, on each rank its own. Without the
  // option that is an error.
  bool trains_apart = false;
  // Losses are scaled up for float16, and gradients are scaled back. A step that overflows is
  // skipped.
  std::optional<GradScalerOptions> loss_scaling;
  // See ExchangeOptions::accept. It is not called while local steps keep replicas apart.
  std::function<bool(double loss, double gradient_norm)> accept;
  std::function<double()> weight;  // See ExchangeOptions::weight.
  // The ranks are made anew in the middle of a run, and the state comes afterwards: the values of
  // the optimizer's options and the choice of frozen parameters may differ until then.
  bool state_follows = false;
};

}  // namespace trireme
