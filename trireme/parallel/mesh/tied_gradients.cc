#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include <trireme/parallel/mesh/tied_gradients.h>
#include <algorithm>

namespace trireme {
namespace {

// The gradient and behind it a 1, or zeros.
at::Tensor message_of(const at::Tensor& parameter) {
  const int64_t elements = parameter.numel();
  at::Tensor message = at::zeros({elements + 1}, parameter.options().requires_grad(false));
  if (!parameter.grad().defined()) return message;
  message.narrow(0, 0, elements).copy_(parameter.grad().reshape({-1}));
  message[elements] = 1;
  return message;
}

}  // namespace

TiedGradients::TiedGradients(std::shared_ptr<Group> stages, const std::vector<TiedParameter>& tied,
                             const std::vector<NamedTensor>& own)
    : stages_(std::move(stages)) {
  for (const TiedParameter& each : tied) {
    const auto found = std::ranges::find(own, each.name, &NamedTensor::name);
    if (found != own.end() && found->tensor.requires_grad())
      tied_.emplace_back(found->tensor, each.stages);
  }
}

void TiedGradients::add_up() {
  const at::NoGradGuard no_grad;
  std::vector<WorkPtr> sends;
  std::vector<at::Tensor> messages;
  for (const auto& [parameter, where] : tied_) {
    messages.push_back(message_of(parameter));
    for (const int stage : where)
      if (stage != stages_->rank()) sends.push_back(stages_->send_async(messages.back(), stage));
  }
  for (size_t i = 0; i < tied_.size(); ++i) {
    const auto& [parameter, where] = tied_[i];
    at::Tensor sum = at::zeros_like(messages[i]);
    for (const int stage : where) {
      at::Tensor part = messages[i];
      if (stage != stages_->rank()) stages_->recv(part = at::empty_like(messages[i]), stage);
      sum.add_(part);
    }
    const int64_t elements = parameter.numel();
    if (sum[elements].item<double>() > 0)
      parameter.mutable_grad() = sum.narrow(0, 0, elements).view(parameter.sizes());
  }
  for (const WorkPtr& send : sends) send->wait();
}

}  // namespace trireme
