#include <trireme/tensor/master_weights.h>

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>

namespace trireme {
namespace {
bool is_half(const at::Tensor& tensor) {
  return tensor.scalar_type() == at::kBFloat16 || tensor.scalar_type() == at::kHalf;
}
}  // namespace

MasterWeights::MasterWeights(const std::vector<at::Tensor>& parameters) : parameters_(parameters) {
  for (const at::Tensor& parameter : parameters_) {
    if (!is_half(parameter)) {
      masters_.push_back(parameter);
      continue;
    }
    masters_.push_back(
        parameter.detach().to(at::kFloat).requires_grad_(parameter.requires_grad()));
    any_ = true;
  }
}

void MasterWeights::adopt() const {
  const at::NoGradGuard no_grad;
  for (size_t i = 0; i < parameters_.size(); ++i)
    if (is_half(parameters_[i])) masters_[i].copy_(parameters_[i]);
}

void MasterWeights::take_gradients() const {
  for (size_t i = 0; i < parameters_.size(); ++i) {
    at::Tensor& gradient = parameters_[i].mutable_grad();
    if (!is_half(parameters_[i]) || !gradient.defined()) continue;
    masters_[i].mutable_grad() = gradient.to(at::kFloat);
    gradient.reset();
  }
}

void MasterWeights::publish() const {
  const at::NoGradGuard no_grad;
  for (size_t i = 0; i < parameters_.size(); ++i)
    if (is_half(parameters_[i])) parameters_[i].copy_(masters_[i]);
}

}  // namespace trireme
