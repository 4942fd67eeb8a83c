// A part of a named tensor whose parts may lie on several ranks. The functions are pure.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace trireme::plan {

// A box of the tensor: the elements from[d] to from[d] + sizes[d] of each dimension d.
struct TensorSlice {
  std::string tensor;          // The name of the whole tensor.
  std::vector<int64_t> shape;  // The shape of the whole tensor.
  std::vector<int64_t> from, sizes;

  static TensorSlice whole(std::string tensor, std::vector<int64_t> shape);
  bool is_whole() const;
  int64_t elements() const;
  std::string describe() const;  // "conv1.weight[0:16, 3:6] of [32, 6]"
  bool operator==(const TensorSlice&) const = default;
};

// Throws Error(internal) naming the slice unless it lies within its tensor.
void check(const TensorSlice& slice);

}  // namespace trireme::plan
