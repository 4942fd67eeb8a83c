// Tensors that have memory in common.
#pragma once
#include <ATen/core/Tensor.h>
#include <vector>

namespace trireme {

// For each tensor: whether its bytes, from the first to the last, overlap those of another tensor.
// A tensor that is undefined, has no elements or has no storage overlaps nothing.
std::vector<bool> overlapping(const std::vector<at::Tensor>& tensors);

}  // namespace trireme
