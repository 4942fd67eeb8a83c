// The number of batches that batch norms have seen.
#pragma once
#include <ATen/core/Tensor.h>
#include <trireme/parallel/module_state.h>
#include <utility>
#include <vector>

namespace trireme {

// All micro-batches of a step are one batch.
class CountedBatches {
 public:
  explicit CountedBatches(const std::vector<NamedTensor>& buffers) {
    for (const auto& [name, tensor] : buffers)
      if (name.ends_with("num_batches_tracked") && tensor.dim() == 0)
        before_.emplace_back(tensor, tensor.item<int64_t>());
  }
  void count_once() const {
    for (const auto& [tensor, before] : before_)
      if (tensor.item<int64_t>() > before) tensor.fill_(before + 1);
  }

 private:
  std::vector<std::pair<at::Tensor, int64_t>> before_;
};

}  // namespace trireme
