#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/linalg_vector_norm.h>

#include <trireme/parallel/gradients.h>
#include <trireme/tensor/overlap.h>
#include <cmath>

namespace trireme {

double norm_of(const std::vector<at::Tensor>& gradients, const TensorUsed& used) {
  const at::NoGradGuard no_grad;
  double squares = 0;
  for (const at::Tensor& gradient : gradients) {
    if (!gradient.defined()) continue;
    const double norm =
        at::linalg_vector_norm(gradient, 2, std::nullopt, false, at::kDouble).item<double>();
    squares += norm * norm;
    if (used) used(gradient);
  }
  return std::sqrt(squares);
}

void multiply(const std::vector<at::Tensor>& gradients, double factor, const TensorUsed& used) {
  if (factor == 1.0) return;
  const at::NoGradGuard no_grad;
  for (const at::Tensor& gradient : gradients) {
    if (!gradient.defined()) continue;
    gradient.mul_(factor);
    if (used) used(gradient);
  }
}

double clip_factor(double norm, double clip_norm) {
  return clip_norm > 0 && norm > clip_norm ? clip_norm / (norm + 1e-6) : 1.0;
}

void separate_gradients(const std::vector<NamedTensor>& parameters) {
  const at::NoGradGuard no_grad;
  // The gradients whose memory has another owner; only these can overlap.
  std::vector<at::Tensor> gradients, owners;
  for (const auto& [name, tensor] : parameters) {
    const at::Tensor& gradient = tensor.grad();
    if (!gradient.defined() || !gradient.has_storage()) continue;
    if (!gradient.is_non_overlapping_and_dense()) {
      tensor.mutable_grad() = gradient.clone();
    } else if (gradient.use_count() > 1 || gradient.storage().use_count() > 1) {
      gradients.push_back(gradient);
      owners.push_back(tensor);
    }
  }
  const std::vector<bool> overlap = overlapping(gradients);
  for (size_t i = 0; i < owners.size(); ++i)
    if (overlap[i]) owners[i].mutable_grad() = gradients[i].clone();
}

}  // namespace trireme
