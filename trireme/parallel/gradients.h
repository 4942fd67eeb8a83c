// Operations on gradients between their reduction and the update.
#pragma once
#include <ATen/core/Tensor.h>
#include <trireme/parallel/module_state.h>
#include <vector>

namespace trireme {

// The L2 norm over all defined tensors, in float64. It is NaN or infinite if one of
// their values is.
double norm_of(const std::vector<at::Tensor>& gradients);
// Multiplies in place and skips undefined tensors.
void multiply(const std::vector<at::Tensor>& gradients, double factor);
// The factor that brings gradients of `norm` down to at most `clip_norm` (0 means never), as
// torch.nn.utils.clip_grad_norm_ computes it.
double clip_factor(double norm, double clip_norm);
// The least that a rank can send for an all-reduce of `bytes` if all ranks do an equal part of it
// (Patarasuk, Yuan 2009).
int64_t all_reduce_bytes(int64_t bytes, int ranks);
// Gives each gradient memory that no other tensor sees. Autograd may leave two gradients in one
// storage (`a.unsqueeze(0) + b.unsqueeze(0)`). Scaling one of them in place, or adding to it,
// would change the other too.
void separate_gradients(const std::vector<NamedTensor>& parameters);

}  // namespace trireme
