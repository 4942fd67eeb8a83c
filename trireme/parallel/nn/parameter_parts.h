// The parts of a layer's parameters that one rank of the tensor axis keeps.
#pragma once
#include <ATen/core/Tensor.h>
#include <trireme/plan/tensor_slice.h>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace trireme::nn {

// A parameter of the model, and how much of it this rank has.
struct ParameterParts {
  std::string name;
  // The boxes of the whole tensor that this rank keeps; it keeps them one after another along
  // dimension 0. A replicated parameter has one box, which is the whole tensor. Most divided ones
  // have one box too. The queries, keys and values of attention are three.
  std::vector<plan::TensorSlice> parts;
  // Each rank computes the gradient of a replicated parameter from its own tokens alone: the sum
  // over the tensor axis is the gradient. Otherwise a replicated parameter's gradients are equal
  // on all ranks of the axis.
  bool sums_gradients = false;

  bool is_divided() const { return parts.size() != 1 || !parts.front().is_whole(); }
  std::vector<int64_t> sizes() const;  // The sizes of this rank's part.
};

// The elements [first, last) of `count` that a rank has: contiguous, and at most one more than any
// other rank.
std::pair<int64_t, int64_t> range_of(int64_t count, int rank, int ranks);

// This rank's part of a whole tensor, in memory of its own. Parameters, their masters, gradients
// and the optimizer's tensors for them are divided alike.
at::Tensor part_of(const at::Tensor& whole, const ParameterParts& parts);

}  // namespace trireme::nn
