// Layers divided among ranks in threads, and the whole gradients that belong to their parts.
#pragma once
#include "models.h"
// This header must come after those of torch.
#include <gtest/gtest.h>

#include <trireme/parallel/boxes.h>
#include <trireme/parallel/module_state.h>
#include <trireme/parallel/nn/tensor_parallel_layer.h>
#include <map>
#include <mutex>

namespace trireme::tests {

using NamedTensors = std::map<std::string, at::Tensor>;

// The group of a rank, which on_ranks() keeps.
inline std::shared_ptr<Group> shared(Group& group) {
  return {&group, [](Group*) {}};
}

inline at::Tensor normal(at::IntArrayRef sizes, uint64_t seed, at::ScalarType type = at::kDouble) {
  return at::randn(sizes, at::detail::createCPUGenerator(seed), at::kDouble).to(type);
}

// Puts the pieces of a rank's tensors into whole ones. The ranks of a tensor axis call it.
class Assembly {
 public:
  void add(const nn::ParameterParts& parts, const at::Tensor& part) {
    const std::lock_guard lock(mutex_);
    StateView pieces;
    show_boxes(parts.name, parts.parts, part, StateKind::parameter, pieces);
    for (const StateEntry& piece : pieces) {
      const at::Tensor whole =
          whole_.try_emplace(parts.name, at::full(piece.slice.shape, NAN, part.options()))
              .first->second;
      const at::Tensor place = part_of(whole, piece.slice);
      // Replicated tensors are the same on all ranks.
      if (!parts.is_divided() && !place.isnan().any().item<bool>()) {
        EXPECT_TRUE(at::equal(place, piece.tensor)) << parts.name;
      }
      place.copy_(piece.tensor);
    }
  }
  const NamedTensors& whole() const { return whole_; }

 private:
  std::mutex mutex_;
  NamedTensors whole_;
};

// COLLECTIVE. The gradients of this rank's parameters, as an engine completes them.
inline void assemble_gradients(torch::nn::Module& module, Group& ranks,
                               const std::vector<nn::ParameterParts>& all, Assembly& assembly) {
  const auto parameters = module.named_parameters();
  for (const nn::ParameterParts& parts : all) {
    at::Tensor gradient = parameters[parts.name].grad().clone();
    if (parts.sums_gradients) ranks.all_reduce(gradient);
    assembly.add(parts, gradient);
  }
}

inline void expect_close(const NamedTensors& actual, const NamedTensors& expected,
                         double tolerance, const std::string& where) {
  ASSERT_EQ(actual.size(), expected.size()) << where;
  for (const auto& [name, tensor] : expected) {
    ASSERT_TRUE(actual.contains(name)) << where << " " << name;
    const double scale = std::max(1.0, tensor.abs().max().item<double>());
    EXPECT_LE(difference(actual.at(name), tensor), tolerance * scale) << where << " " << name;
  }
}

inline NamedTensors gradients_of(const torch::nn::Module& module) {
  NamedTensors gradients;
  for (const auto& item : module.named_parameters())
    gradients[item.key()] = item.value().grad().clone();
  return gradients;
}

}  // namespace trireme::tests
