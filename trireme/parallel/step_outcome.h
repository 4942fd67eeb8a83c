// A rank's contribution to a step besides its gradients, and the outcome that it learns.
#pragma once
#include <trireme/parallel/parameter_changes.h>
#include <cstdint>
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
  bool wants_end = false;  // Of a loop of the user's own, as by a signal.
  // The factor by which gradients are too large (loss scaling); the same on all ranks.
  double gradient_scale = 1;
  // A change that this rank found. If there is one, no rank updates and all ranks throw.
  ParameterChange change;
  // A hash of the optimizer's groups. If it is not the same on all ranks, all ranks throw.
  uint64_t groups = 0;
  // A digest of the rank's learning rates and, now and then, its parameters before the step; 0:
  // not told. If the ranks that tell one tell different ones, all ranks throw.
  uint64_t digest = 0;
  // How often this rank has written its parameters; 0: not told.
  uint64_t writes = 0;
};

// The result of a step, the same on all replicas except for what this rank sent and updated and,
// in local steps, gradient_norm.
struct StepOutcome {
  double loss = 0;  // The mean over all samples.
  int64_t samples = 0;
  double gradient_norm = -1;  // The norm before clipping; negative if it was not computed.
  bool stop = false;          // Some replica wants to stop after this step.
  bool regroup = false;  // Some replica knows that the members of the job change after this step.
  bool end = false;      // Some replica's loop is asked to end (run_elastic()).
  // Replicas whose loss was NaN or infinite. If there are any, nothing was updated.
  std::vector<int> nonfinite_ranks;
  int nonfinite_parameter = -1;  // The parameter in whose gradient that was found, if known.
  // The gradient norm was NaN or infinite, and nothing was updated. Known only if the norm is
  // computed, or with compression.
  bool nonfinite_gradients = false;
  // Some rank has written its parameters more or less often than others.
  bool writes_differ = false;
  bool updated = false;
  std::vector<int> unused;  // Trainable parameters for which no replica had a gradient.
  // The engine fills in the next two: the operations of the step in which this rank took part, and
  // the bytes that it sent in them (Group::traffic).
  int64_t operations = 0;
  int64_t bytes_sent = 0;
  int64_t updated_elements = 0;  // The elements of parameters that this rank updated.
};

}  // namespace trireme
