// A few values of a tensor that tell whether it was written. Version counters do not: LibTorch's
// SGD writes to parameter.data(), which has a counter of its own.
#pragma once
#include <ATen/core/Tensor.h>
#include <trireme/base/hash.h>
#include <trireme/parallel/module_state.h>
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

namespace trireme {

// A hash of up to `count` values that lie evenly in the tensor, the same for the same values. 0
// for a tensor that is not in the host's memory: to read one would wait for its device.
inline uint64_t sample_of(const at::Tensor& tensor, int64_t count) {
  if (!tensor.is_cpu() || !tensor.has_storage() || tensor.numel() == 0 ||
      !tensor.is_non_overlapping_and_dense())
    return 0;
  const auto* const values = static_cast<const std::byte*>(tensor.const_data_ptr());
  const int64_t step = std::max<int64_t>(1, tensor.numel() / count);
  uint64_t hash = 1;
  for (int64_t i = step / 2; i < tensor.numel(); i += step) {
    uint64_t bits = 0;
    std::memcpy(&bits, values + i * tensor.element_size(),
                static_cast<size_t>(std::min<int64_t>(tensor.element_size(), sizeof bits)));
    hash = mix64(hash, bits);
  }
  return hash;
}

// A hash of one value of each tensor.
inline uint64_t sample_of(const std::vector<NamedTensor>& tensors) {
  uint64_t mix = 1;
  for (const auto& [name, tensor] : tensors) mix = mix64(mix, sample_of(tensor, 1));
  return mix;
}

}  // namespace trireme
