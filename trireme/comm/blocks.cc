#include <ATen/core/Tensor.h>

#include <trireme/comm/blocks.h>
#include <cstring>

namespace trireme::comm {

Fold fold_of(ReduceOp op) {
  return op == ReduceOp::max ? Fold::max : op == ReduceOp::min ? Fold::min : Fold::sum;
}

void take_block(const at::Tensor& output, const at::Tensor& whole, int rank) {
  output.copy_(
      whole.view({-1}).narrow(0, rank * output.numel(), output.numel()).view(output.sizes()));
}

void put_block(const at::Tensor& whole, const at::Tensor& input, int rank) {
  if (input.numel() == 0) return;
  auto* const place = static_cast<std::byte*>(whole.mutable_data_ptr()) +
                      static_cast<size_t>(rank) * input.nbytes();
  if (place != input.const_data_ptr()) std::memmove(place, input.const_data_ptr(), input.nbytes());
}

void take_message(const at::Tensor& tensor, const Message& message, int from, int tag) {
  refuse_message(difference_of(message.form, from, tag, form_of(tensor)));
  if (!message.bytes.empty())
    std::memcpy(tensor.mutable_data_ptr(), message.bytes.data(), message.bytes.size());
}

}  // namespace trireme::comm
