#include <ATen/core/Tensor.h>
#include <ATen/ops/empty_like.h>

#include <trireme/comm/blocks.h>
#include <trireme/comm/dtype.h>
#include <algorithm>
#include <cstring>

namespace trireme::comm {

Fold fold_of(ReduceOp op) {
  return op == ReduceOp::max ? Fold::max : op == ReduceOp::min ? Fold::min : Fold::sum;
}

void take_block(const at::Tensor& output, const at::Tensor& whole, int rank) {
  output.copy_(
      whole.view({-1}).narrow(0, rank * output.numel(), output.numel()).view(output.sizes()));
}

void reduce_blocks(const std::vector<at::Tensor>& blocks, const at::Tensor& output, ReduceOp op) {
  std::vector<const void*> sources;
  for (const at::Tensor& block : blocks) sources.push_back(block.const_data_ptr());
  const bool apart = std::none_of(blocks.begin(), blocks.end(), [&](const at::Tensor& block) {
    return output.is_alias_of(block);
  });
  const at::Tensor sum = apart ? output : at::empty_like(output);
  fold_range(to_plan(sum.scalar_type()), fold_of(op), sum.mutable_data_ptr(), sources, 0,
             sum.numel());
  if (!apart) output.copy_(sum);
  if (op == ReduceOp::mean) output.div_(static_cast<int64_t>(blocks.size()));
}

void put_block(const at::Tensor& whole, const at::Tensor& input, int rank) {
  if (input.numel() == 0) return;
  auto* const place = static_cast<std::byte*>(whole.mutable_data_ptr()) +
                      static_cast<size_t>(rank) * input.nbytes();
  if (place != input.const_data_ptr()) std::memmove(place, input.const_data_ptr(), input.nbytes());
}

}  // namespace trireme::comm
