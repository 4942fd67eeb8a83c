#include <ATen/ScalarOps.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/mul.h>

#include <trireme/parallel/flat_gradients.h>
#include <trireme/parallel/gradients.h>
#include <cmath>

namespace trireme {

namespace {

void put(const at::Tensor& gradient, const at::Tensor& place, double weight) {
  const at::Tensor dense = (gradient.is_sparse() ? gradient.to_dense() : gradient).reshape({-1});
  if (weight == 1) {
    if (dense.const_data_ptr() != place.const_data_ptr()) place.copy_(dense);
    return;
  }
  if (dense.device() != place.device()) {  // Compressors work on the host.
    place.copy_(dense).mul_(weight);
    return;
  }
  at::Tensor out = place;
  at::mul_out(out, dense, c10::scalar_to_tensor(weight));
}

}  // namespace

void pack(const plan::Bucket& bucket, const std::vector<NamedTensor>& parameters,
          const at::Tensor& flat, double weight) {
  for (size_t i = 0; i < bucket.params.size(); ++i) {
    const at::Tensor& gradient = parameters[static_cast<size_t>(bucket.params[i])].tensor.grad();
    const int64_t end = i + 1 < bucket.params.size() ? bucket.offsets[i + 1] : bucket.elements;
    const at::Tensor place = flat.narrow(0, bucket.offsets[i], end - bucket.offsets[i]);
    if (gradient.defined() && gradient.numel() == place.numel())
      put(gradient, place, weight);
    else
      place.zero_();
  }
}

void unpack(const plan::Bucket& bucket, const std::vector<NamedTensor>& parameters,
            const at::Tensor& flat, const std::vector<bool>& used) {
  for (size_t i = 0; i < bucket.params.size(); ++i) {
    const auto index = static_cast<size_t>(bucket.params[i]);
    const at::Tensor& parameter = parameters[index].tensor;
    if (!used[index]) {
      parameter.mutable_grad().reset();
      continue;
    }
    const at::Tensor reduced =
        flat.narrow(0, bucket.offsets[i], parameter.numel()).view(parameter.sizes());
    parameter.mutable_grad() =
        reduced.device() == parameter.device() ? reduced : reduced.to(parameter.device());
  }
}

std::vector<bool> has_gradient(const std::vector<NamedTensor>& parameters) {
  std::vector<bool> has;
  for (const auto& [name, tensor] : parameters)
    has.push_back(tensor.requires_grad() && tensor.grad().defined());
  return has;
}

void finish_step(const std::vector<NamedTensor>& parameters, std::span<const int> trainable,
                 double factor, const ExchangeOptions& options, const Update& update,
                 StepOutcome& outcome) {
  std::vector<at::Tensor> gradients;
  for (const int parameter : trainable)
    gradients.push_back(parameters[static_cast<size_t>(parameter)].tensor.grad());
  if (options.clip_norm > 0 || options.want_norm) {
    outcome.gradient_norm = norm_of(gradients, options.gradient_used) * factor;
    outcome.nonfinite_gradients = !std::isfinite(outcome.gradient_norm);
    factor *= clip_factor(outcome.gradient_norm, options.clip_norm);
  }
  if (outcome.nonfinite_gradients ||
      (options.accept && !options.accept(outcome.loss, outcome.gradient_norm)))
    return;
  multiply(gradients, factor, options.gradient_used);
  for (size_t i = 0; i < gradients.size(); ++i)
    if (!gradients[i].defined()) outcome.unused.push_back(trainable[i]);
  update(trainable);
  outcome.updated = true;
}

}  // namespace trireme
