#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/zeros.h>

#include <trireme/parallel/mesh/stage_scalars.h>

namespace trireme {

void share_scalars(Group& stages, const Stage& own, const std::vector<NamedTensor>& tensors) {
  if (stages.size() == 1) return;
  for (const auto& [name, tensor] : tensors)
    if (tensor.dim() == 0) stages.broadcast(as_bytes(tensor.detach()), own.first_stages.at(name));
}

void share_trained_scalars(Group& stages, const Stage& own,
                           const std::vector<NamedTensor>& scalars) {
  const auto count = std::ssize(scalars);
  if (stages.size() == 1 || count == 0) return;
  const at::NoGradGuard no_grad;
  const at::Tensor values = at::zeros({count}, at::kDouble);
  for (int64_t i = 0; i < count; ++i) {
    const auto& [name, tensor] = scalars[static_cast<size_t>(i)];
    if (own.first_stages.at(name) == stages.rank()) values[i] = tensor.detach();
  }
  stages.all_reduce(values);
  for (int64_t i = 0; i < count; ++i) {
    const auto& [name, tensor] = scalars[static_cast<size_t>(i)];
    if (!own.parameters.contains(name)) tensor.detach().copy_(values[i]);
  }
}

}  // namespace trireme
