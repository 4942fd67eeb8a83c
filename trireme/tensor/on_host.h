// The values of a tensor where code of the host can read them.
#pragma once
#include <ATen/core/Tensor.h>

namespace trireme {

// The tensor itself, without its graph, if it is contiguous and on the CPU; otherwise a copy.
inline at::Tensor on_host(const at::Tensor& tensor) {
  const at::Tensor whole = tensor.detach().contiguous();
  return whole.is_cpu() ? whole : whole.cpu();
}

}  // namespace trireme
