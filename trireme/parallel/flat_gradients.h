// Gradients of a bucket in one tensor, as they travel, and the end of a step once they are reduced.
#pragma once
#include <trireme/parallel/exchange.h>
#include <span>
#include <vector>

namespace trireme {

// Copies the .grad of the bucket's parameters to their places in `flat`; zeros where there is none,
// and where it does not fit, as the shape of the parameter changed (parameter_changes.h).
void pack(const plan::Bucket& bucket, const std::vector<NamedTensor>& parameters,
          const at::Tensor& flat);
// Makes each .grad a view of `flat`, so that the update reads the gradients where they lie;
// undefined where not `used` (by parameter).
void unpack(const plan::Bucket& bucket, const std::vector<NamedTensor>& parameters,
            const at::Tensor& flat, const std::vector<bool>& used);
// By parameter, whether it has a gradient.
std::vector<bool> has_gradient(const std::vector<NamedTensor>& parameters);

// Multiplies the gradients of `trainable` by `factor` and clips them, in one pass over memory (none
// where neither is needed), fills in norm, unused and updated of the outcome, and calls `update`
// unless the gradients are not finite or the step is not accepted.
void finish_step(const std::vector<NamedTensor>& parameters, std::span<const int> trainable,
                 double factor, const ExchangeOptions& options, const Update& update,
                 StepOutcome& outcome);

}  // namespace trireme
