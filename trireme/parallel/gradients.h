// What is done to gradients between their reduction and the update.
#pragma once
#include <ATen/core/Tensor.h>
#include <trireme/base/error.h>
#include <string>
#include <vector>

namespace trireme {

// The L2 norm over all defined tensors, in float64; NaN or infinite if one of their values is.
double norm_of(const std::vector<at::Tensor>& gradients);
void multiply(const std::vector<at::Tensor>& gradients,
              double factor);  // In place; undefined ones are passed over.
// What gradients of `norm` are multiplied by to have at most `clip_norm` (0: never), as
// torch.nn.utils.clip_grad_norm_ does.
double clip_factor(double norm, double clip_norm);
// The least that a rank can send for an all-reduce of `bytes` where all ranks do an equal part
// (Patarasuk, Yuan 2009).
int64_t all_reduce_bytes(int64_t bytes, int ranks);
// A parameter that was frozen when the engine was made is not exchanged: with a gradient of its
// own, replicas would drift apart. `whose`: "parameter 'x'".
Error newly_trainable(const std::string& whose);

}  // namespace trireme
