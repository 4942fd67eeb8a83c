#include <trireme/parallel/compression/kernels.h>
#include <trireme/parallel/finite_gradient.h>
#include <algorithm>
#include <cmath>

namespace trireme {

bool is_finite_gradient(const at::Tensor& gradient, int64_t most) {
  const at::Tensor values = (gradient.is_sparse() ? gradient._values() : gradient).detach();
  if (values.is_cpu() && values.is_non_overlapping_and_dense()) {
    most = std::min(values.numel(), most);
    if (values.scalar_type() == at::kFloat)
      return compression::is_finite(values.const_data_ptr<float>(), most);
    if (values.scalar_type() == at::kDouble)
      return compression::is_finite(values.const_data_ptr<double>(), most);
  }
  return !values.is_floating_point() || std::isfinite(values.sum(at::kDouble).item<double>());
}

}  // namespace trireme
