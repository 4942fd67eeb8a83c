// Small models, and functions that compare replicas with one device that sees the whole batch.
#pragma once
#include <ATen/ATen.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>

#include <trireme/comm/threads/thread_group.h>
#include <trireme/parallel/data_parallel.h>
#include <trireme/plan/data_plan.h>

#include "../comm/ranks.h"

namespace trireme::tests {

// Sets deterministic values from the shape alone, so that every replica starts alike
// without a generator.
inline void fill(const torch::nn::Module& module) {
  const at::NoGradGuard no_grad;
  int64_t place = 0;
  for (const auto& parameter : module.parameters()) {
    parameter.copy_(
        (at::arange(parameter.numel(), at::kDouble) * 0.7 + static_cast<double>(++place))
            .sin()
            .mul(0.5)
            .view(parameter.sizes()));
  }
}

struct Mlp : torch::nn::Module {
  explicit Mlp(int64_t inputs = 6, int64_t hidden = 10, int64_t classes = 4)
      : first(register_module("first", torch::nn::Linear(inputs, hidden))),
        second(register_module("second", torch::nn::Linear(hidden, classes))) {
    to(at::kDouble);
    fill(*this);
  }
  at::Tensor forward(const at::Tensor& x) { return second(at::tanh(first(x))); }
  torch::nn::Linear first, second;
};

struct Data {
  at::Tensor x, y;
  Data part(int64_t first, int64_t last) const {
    return {x.narrow(0, first, last - first), y.narrow(0, first, last - first)};
  }
  Data share(int rank, int size) const {
    const auto [first, last] = plan::DataPlan::share(x.size(0), rank, size);
    return part(first, last);
  }
  int64_t size() const { return x.size(0); }
};
inline Data data_of(int64_t samples, int64_t step = 0, at::ScalarType dtype = at::kDouble) {
  const auto generator = at::detail::createCPUGenerator(static_cast<uint64_t>(100 + step));
  return {at::randn({samples, 6}, generator, at::kDouble).to(dtype),
          at::randint(4, {samples}, generator, at::kLong)};
}

template <typename Net>
at::Tensor loss_on(Net& net, const Data& data) {
  return at::cross_entropy_loss(net.forward(data.x), data.y);
}

// An "optimizer" that only keeps the gradients of each parameter.
class Recorder : public torch::optim::Optimizer {
 public:
  explicit Recorder(std::vector<at::Tensor> parameters)
      : Optimizer(std::move(parameters), std::make_unique<torch::optim::SGDOptions>(0.1)) {}
  at::Tensor step(LossClosure = nullptr) override {
    gradients.clear();
    for (const auto& parameter : param_groups()[0].params())
      gradients.push_back(parameter.grad().defined() ? parameter.grad().clone() : at::Tensor());
    return {};
  }
  std::vector<at::Tensor> gradients;
};
inline std::vector<at::Tensor> trainable_of(const std::vector<NamedTensor>& parameters) {
  std::vector<at::Tensor> tensors;
  for (const auto& [name, tensor] : parameters)
    if (tensor.requires_grad()) tensors.push_back(tensor);
  return tensors;
}
inline OptimizerFactory recording() {
  return [](const std::vector<NamedTensor>& parameters) {
    return std::make_shared<Recorder>(trainable_of(parameters));
  };
}
inline const std::vector<at::Tensor>& recorded(DataParallel& replica) {
  return static_cast<Recorder&>(replica.optimizer()).gradients;
}

inline double difference(const at::Tensor& a, const at::Tensor& b) {
  return (a.to(at::kDouble) - b.to(at::kDouble)).abs().max().item<double>();
}
inline double difference(const torch::nn::Module& a, const torch::nn::Module& b) {
  double worst = 0;
  const auto left = a.parameters(), right = b.parameters();
  for (size_t i = 0; i < left.size(); ++i)
    worst = std::max(worst, difference(left[i].detach(), right[i].detach()));
  return worst;
}
inline bool same_bits(const std::vector<NamedTensor>& a, const std::vector<NamedTensor>& b) {
  return sha256_of(a) == sha256_of(b);
}

}  // namespace trireme::tests
