#include <trireme/tensor/parameter_average.h>

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>

#include <fmt/format.h>
#include <trireme/base/error.h>

namespace trireme {

ParameterAverage::ParameterAverage(double decay, std::vector<at::Tensor> parameters)
    : decay_(decay), parameters_(std::move(parameters)) {
  if (!(decay > 0 && decay < 1))
    throw Error(ErrorCode::invalid_argument, "tensor",
                fmt::format("the decay of an average is {}", decay),
                "between 0 and 1, such as 0.999");
  for (const at::Tensor& parameter : parameters_)
    averages_.push_back(parameter.detach()
                            .to(parameter.scalar_type() == at::kDouble ? at::kDouble : at::kFloat)
                            .clone());
}

void ParameterAverage::update() const {
  const at::NoGradGuard no_grad;
  for (size_t i = 0; i < parameters_.size(); ++i)
    averages_[i].lerp_(parameters_[i].detach().to(averages_[i].scalar_type()), 1 - decay_);
}

void ParameterAverage::reset() const {
  const at::NoGradGuard no_grad;
  for (size_t i = 0; i < parameters_.size(); ++i) averages_[i].copy_(parameters_[i]);
}

ParameterAverage::InUse::InUse(const ParameterAverage* average) : average_(average) {
  if (average_ == nullptr) return;
  const at::NoGradGuard no_grad;
  for (const at::Tensor& parameter : average_->parameters_)
    own_.push_back(parameter.detach().clone());
  for (size_t i = 0; i < own_.size(); ++i)
    average_->parameters_[i].variable_data().copy_(average_->averages_[i]);
}

ParameterAverage::InUse::~InUse() {
  const at::NoGradGuard no_grad;
  for (size_t i = 0; i < own_.size(); ++i) average_->parameters_[i].variable_data().copy_(own_[i]);
}

}  // namespace trireme
