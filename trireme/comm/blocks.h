// What carriers have in common in handling tensors' memory.
#pragma once
#include <trireme/comm/group.h>
#include <trireme/comm/threads/reduce_kernel.h>
#include <vector>

namespace trireme::comm {

Fold fold_of(ReduceOp op);  // mean: the sum, to be divided afterwards.
// output = block `rank` of `whole`, which has as many blocks of output's size as there are ranks.
void take_block(const at::Tensor& output, const at::Tensor& whole, int rank);
// Block `rank` of `whole` = input, which may be that block already.
void put_block(const at::Tensor& whole, const at::Tensor& input, int rank);
// tensor = a message of rank `from`. Throws Error(invalid_argument) if it has another size.
void take_message(const at::Tensor& tensor, const std::vector<std::byte>& message, int from);

}  // namespace trireme::comm
