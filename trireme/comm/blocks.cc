#include <ATen/core/Tensor.h>

#include <fmt/format.h>

#include <trireme/base/error.h>
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

void take_message(const at::Tensor& tensor, const std::vector<std::byte>& message, int from) {
  if (message.size() != tensor.nbytes())
    throw Error(ErrorCode::invalid_argument, "comm",
                fmt::format("recv: rank {} sent {} bytes, but the tensor has {}", from,
                            message.size(), tensor.nbytes()),
                "tensors of the same size and type");
  if (!message.empty()) std::memcpy(tensor.mutable_data_ptr(), message.data(), message.size());
}

}  // namespace trireme::comm
