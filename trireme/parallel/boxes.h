// Boxes of whole tensors, and tensors that consist of several, one after another along their
// dimension 0.
#pragma once
#include <ATen/core/Tensor.h>
#include <trireme/parallel/state_view.h>
#include <trireme/plan/tensor_slice.h>
#include <string>
#include <vector>

namespace trireme {

// A view of the box of a whole tensor.
at::Tensor part_of(const at::Tensor& whole, const plan::TensorSlice& box);

// The sizes of the tensor.
std::vector<int64_t> sizes_of(const std::vector<plan::TensorSlice>& boxes);
// The boxes of its rows [from, to). At least one, which may be empty.
std::vector<plan::TensorSlice> rows_of(const std::vector<plan::TensorSlice>& boxes, int64_t from,
                                       int64_t to);
// Adds an entry for each box. `name` is that of the whole tensor.
void show_boxes(const std::string& name, const std::vector<plan::TensorSlice>& boxes,
                const at::Tensor& tensor, StateKind kind, StateView& view);

}  // namespace trireme
