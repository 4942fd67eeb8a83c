// The gradients of a bucket in one tensor, as they travel, and the end of a step after reduction.
#pragma once
#include <trireme/parallel/exchange.h>
#include <span>
#include <vector>

namespace trireme {

// Copies the .grad of the bucket's parameters, times `weight`, to their places in `flat`, where
// some may lie already. A sparse gradient becomes dense. A place gets zeros if there is no
// gradient, or if it does not fit because the parameter's shape changed (parameter_changes.h).
void pack(const plan::Bucket& bucket, const std::vector<NamedTensor>& parameters,
          const at::Tensor& flat, double weight = 1);
// Makes each .grad a view of `flat`, so that the update reads the gradients from there, or a copy
// on the parameter's device. Parameters that are not `used` get an undefined .grad.
void unpack(const plan::Bucket& bucket, const std::vector<NamedTensor>& parameters,
            const at::Tensor& flat, const std::vector<bool>& used);
// Whether each parameter has a gradient, by index.
std::vector<bool> has_gradient(const std::vector<NamedTensor>& parameters);

// Multiplies the gradients of `trainable` by `factor` and clips them, in at most one pass over
// memory. Fills in norm, unused and updated of the outcome. Calls `update` unless the gradients
// are not finite or the step is not accepted.
void finish_step(const std::vector<NamedTensor>& parameters, std::span<const int> trainable,
                 double factor, const ExchangeOptions& options, const Update& update,
                 StepOutcome& outcome);

}  // namespace trireme
