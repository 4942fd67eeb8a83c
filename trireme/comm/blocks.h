// Helpers that all backends use to handle the memory of tensors.
#pragma once
#include <trireme/comm/group.h>
#include <trireme/comm/threads/reduce_kernel.h>
#include <vector>

namespace trireme::comm {

Fold fold_of(ReduceOp op);  // For a mean this is the sum; the caller divides it.
// output = block `rank` of `whole`, which has one block of output's size for each rank.
void take_block(const at::Tensor& output, const at::Tensor& whole, int rank);
// Block `rank` of `whole` = input; `input` may be that block already.
void put_block(const at::Tensor& whole, const at::Tensor& input, int rank);
// tensor = a message of rank `from`. Throws Error(invalid_argument) if their sizes differ.
void take_message(const at::Tensor& tensor, const std::vector<std::byte>& message, int from);

}  // namespace trireme::comm
