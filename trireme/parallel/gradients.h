// Operations on gradients between their reduction and the update.
#pragma once
#include <ATen/core/Tensor.h>
#include <trireme/parallel/module_state.h>
#include <functional>
#include <vector>

namespace trireme {

// Called when a pass is done with a tensor. May be empty.
using TensorUsed = std::function<void(const at::Tensor&)>;

// The L2 norm over all defined tensors, in float64. It is NaN or infinite if one of
// their values is.
double norm_of(const std::vector<at::Tensor>& gradients, const TensorUsed& used = {});
// Multiplies in place and skips undefined tensors.
void multiply(const std::vector<at::Tensor>& gradients, double factor,
              const TensorUsed& used = {});
// The factor that brings gradients of `norm` down to at most `clip_norm` (0 means never), as
// torch.nn.utils.clip_grad_norm_ computes it.
double clip_factor(double norm, double clip_norm);
// Gives each gradient memory that no other gradient sees. Autograd may leave two gradients in one
// storage (`a.unsqueeze(0) + b.unsqueeze(0)`). Scaling one of them in place, or adding to it,
// would change the other too. Gradients that lie side by side in one tensor stay there, because
// the caller may scale that tensor before the step.
void separate_gradients(const std::vector<NamedTensor>& parameters);

}  // namespace trireme
