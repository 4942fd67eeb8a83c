// A module together with the call that runs it, because torch::nn::Module itself has no forward().
#pragma once
#include <ATen/core/Tensor.h>
#include <functional>
#include <memory>

namespace torch::nn {
class Module;
}

namespace trireme {

struct Model {
  std::shared_ptr<torch::nn::Module> module;
  std::function<at::Tensor(const at::Tensor& data)> forward;
};

// Makes one replica's model. Called once for each replica from that replica's thread, with the
// same seed of torch's generator everywhere.
using ModelFactory = std::function<Model()>;

// A factory for any module class with `at::Tensor forward(at::Tensor)`:
// model_factory<Net>(constructor arguments...).
template <typename Net, typename... Args>
ModelFactory model_factory(Args... args) {
  return [args...] {
    auto net = std::make_shared<Net>(args...);
    return Model{net, [net](const at::Tensor& data) { return net->forward(data); }};
  };
}

}  // namespace trireme
