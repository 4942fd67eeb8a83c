// A deep model whose blocks have every source of differences, and engines that train it.
#pragma once
#include "engines.h"

#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/linear.h>

#include <trireme/tensor/replica_random.h>
#include <cstdlib>
#include <filesystem>
#include <string>

namespace trireme::tests {

// Blocks of two layers each, with dropout, batch norm and operations in place.
struct Deep : torch::nn::Module {
  static constexpr int kLayers = 4, kWidth = 64;
  explicit Deep(bool has_norms = true, int layers = kLayers) {
    for (int i = 0; i < layers; ++i) {
      const std::string number = std::to_string(i);
      first.push_back(
          register_module("first" + number, torch::nn::Linear(i == 0 ? 6 : kWidth, kWidth)));
      second.push_back(register_module("second" + number, torch::nn::Linear(kWidth, kWidth)));
      if (has_norms)
        norms.push_back(register_module("norm" + number, torch::nn::BatchNorm1d(kWidth)));
    }
    head = register_module("head", torch::nn::Linear(kWidth, 4));
    to(at::kDouble);
    for (auto& parameter : parameters()) {
      const at::NoGradGuard no_grad;
      parameter.copy_(
          at::randn(parameter.sizes(), at::detail::createCPUGenerator(7), at::kDouble) * 0.2);
    }
  }
  at::Tensor layer(size_t i, const at::Tensor& x) {
    at::Tensor y = first[i](x).relu_();
    if (!norms.empty()) y = norms[i](y);
    y = at::tanh(second[i](at::dropout(y, 0.2, is_training())));
    return y;
  }
  std::vector<Block> blocks() {
    std::vector<Block> all;
    for (size_t i = 0; i < first.size(); ++i) {
      all.push_back({"layer" + std::to_string(i),
                     {first[i].ptr(), second[i].ptr()},
                     [this, i](const Tensors& x) { return Tensors{layer(i, x[0])}; }});
      if (!norms.empty()) all.back().modules.push_back(norms[i].ptr());
    }
    all.push_back(
        {"head", {head.ptr()}, [this](const Tensors& x) { return Tensors{head(x[0])}; }});
    return all;
  }
  at::Tensor forward(at::Tensor x) {
    for (size_t i = 0; i < first.size(); ++i) x = layer(i, x);
    return head(x);
  }
  std::vector<torch::nn::Linear> first, second;
  std::vector<torch::nn::BatchNorm1d> norms;
  torch::nn::Linear head{nullptr};
};

inline Model model_of(const std::shared_ptr<Deep>& net) {
  return {net, [net](const at::Tensor& x) { return net->forward(x); }, {"data"}, net->blocks()};
}

class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string name = ::testing::TempDir() + "trireme-memory-XXXXXX";
    path = ::mkdtemp(name.data());
  }
  ~TemporaryFolder() { std::filesystem::remove_all(path); }
  std::string path;
};

// The hash of the parameters after some steps, and the largest number of bytes held.
struct Trained {
  std::string sha256;
  int64_t activation_bytes = 0, predicted = 0;
};

inline Trained train_engines(int ranks, const MemoryOptions& options, bool together,
                             int layers = Deep::kLayers) {
  Trained trained;
  const auto groups = thread_groups(ranks);
  const auto norm_groups = thread_groups(ranks);
  on_ranks(groups, [&](Group& group) {
    const auto rank = static_cast<size_t>(group.rank());
    ReplicaRandom random(static_cast<uint64_t>(group.rank()));
    const auto net = std::make_shared<Deep>(true, layers);
    EngineSetting setting = setting_of(groups[rank], net);
    setting.model = model_of(net);
    setting.memory = options;
    setting.random = &random;
    if (together) setting.norm_group = norm_groups[rank];
    const auto engine = find_strategy("mirrored").make(setting);
    for (int step = 0; step < 3; ++step) take_step(*engine, data_of(24, step), step + 1, 2);
    engine->prepare_to_read();
    if (rank != 0) return;
    trained.sha256 = sha256_of(state_of(*net).parameters);
    trained.activation_bytes = engine->memory_use().activation_bytes;
    trained.predicted = engine->memory_use().predicted_activation_bytes;
  });
  return trained;
}

}  // namespace trireme::tests
