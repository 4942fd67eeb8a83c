// Helpers that all backends use to handle the memory of tensors.
#pragma once
#include <trireme/comm/group.h>
#include <trireme/comm/message_form.h>
#include <trireme/comm/threads/reduce_kernel.h>
#include <cstddef>
#include <vector>

namespace trireme::comm {

Fold fold_of(ReduceOp op);  // For a mean this is the sum; the caller divides it.
// output = block `rank` of `whole`, which has one block of output's size for each rank.
void take_block(const at::Tensor& output, const at::Tensor& whole, int rank);
// Block `rank` of `whole` = input; `input` may be that block already.
void put_block(const at::Tensor& whole, const at::Tensor& input, int rank);
// A message that was set aside.
struct Message {
  MessageForm form;
  std::vector<std::byte> bytes;
};
// tensor = a message of rank `from`. Throws Error(invalid_argument) if its form differs.
void take_message(const at::Tensor& tensor, const Message& message, int from, int tag);

}  // namespace trireme::comm
