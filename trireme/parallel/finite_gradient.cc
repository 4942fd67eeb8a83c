#include <trireme/parallel/compression/kernels.h>
#include <trireme/parallel/finite_gradient.h>
#include <cmath>

namespace trireme {

bool is_finite_gradient(const at::Tensor& gradient) {
  const at::Tensor values = (gradient.is_sparse() ? gradient._values() : gradient).detach();
  if (values.is_cpu() && values.is_non_overlapping_and_dense()) {
    if (values.scalar_type() == at::kFloat)
      return compression::is_finite(values.const_data_ptr<float>(), values.numel());
    if (values.scalar_type() == at::kDouble)
      return compression::is_finite(values.const_data_ptr<double>(), values.numel());
  }
  return !values.is_floating_point() || std::isfinite(values.sum(at::kDouble).item<double>());
}

}  // namespace trireme
