// Helpers that all backends use to handle the memory of tensors.
#pragma once
#include <trireme/comm/group.h>
#include <trireme/comm/threads/reduce_kernel.h>
#include <cstddef>
#include <vector>

namespace trireme::comm {

Fold fold_of(ReduceOp op);  // For a mean this is the sum; the caller divides it.
// output = block `rank` of `whole`, which has one block of output's size for each rank.
void take_block(const at::Tensor& output, const at::Tensor& whole, int rank);
// output = the reduction of the blocks of all ranks, in rank order. `output` may be part of a
// tensor that holds one of them.
void reduce_blocks(const std::vector<at::Tensor>& blocks, const at::Tensor& output, ReduceOp op);
// Block `rank` of `whole` = input; `input` may be that block already.
void put_block(const at::Tensor& whole, const at::Tensor& input, int rank);
}  // namespace trireme::comm
