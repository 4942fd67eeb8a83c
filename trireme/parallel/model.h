// A module together with the calls that run it, because torch::nn::Module itself has no forward().
#pragma once
#include <ATen/core/Tensor.h>
#include <trireme/data/batch.h>
#include <concepts>
#include <functional>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace torch {
namespace jit {
struct Module;
}
namespace nn {
class Module;
class SequentialImpl;
}  // namespace nn
}  // namespace torch

namespace trireme {

// The call that runs a module. It is made of a function of one tensor, or of several tensors.
class Forward {
 public:
  Forward() = default;
  template <std::invocable<const at::Tensor&> Call>
  Forward(Call call) {
    if constexpr (requires { call == nullptr; })
      if (call == nullptr) return;
    run_ = [call = std::move(call)](const Tensors& inputs) mutable {
      return call(only_one_of(inputs));
    };
  }
  template <typename Call>
    requires(!std::invocable<Call, const at::Tensor&> && std::invocable<Call, const Tensors&>)
  Forward(Call call) : run_(std::move(call)) {}

  at::Tensor operator()(const at::Tensor& data) const { return run_({data}); }
  at::Tensor operator()(const Tensors& inputs) const { return run_(inputs); }
  explicit operator bool() const { return run_ != nullptr; }

 private:
  // Throws Error(invalid_argument) if there are several.
  static const at::Tensor& only_one_of(const Tensors& inputs);
  std::function<at::Tensor(const Tensors& inputs)> run_;
};

// A part of a model. Tensors go from each block to the next one.
struct Block {
  std::string name;
  // The parts of the model's module that the block runs. Their tensors are those of the block.
  std::vector<std::shared_ptr<torch::nn::Module>> modules;
  std::function<Tensors(const Tensors& inputs)> forward;
};

struct Model {
  std::shared_ptr<torch::nn::Module> module;
  Forward forward;
  // The tensors of a batch that forward takes, in this order (Batch::tensor).
  std::vector<std::string> inputs = {"data"};
  // The places at which the model may be cut. One block after the other computes what forward
  // does: the first one takes the inputs, and the last one gives one tensor. Empty: it cannot be
  // cut.
  std::vector<Block> blocks;
};

// The blocks of a model, or one block "model" that is all of it if it names none.
std::vector<Block> blocks_of(const Model& model);
// Runs forward on the batch's tensors.
at::Tensor output_of(const Model& model, const Batch& batch);
// Runs one block after the other.
at::Tensor output_of(const std::vector<Block>& blocks, Tensors inputs);
// The model of a Sequential (pass net.ptr()), cut by itself: each child is a block, which has the
// child's key as its name. As in SequentialImpl::forward(), the first child takes the inputs of
// the model, one to three tensors, and every other child takes what the one before gives. A block
// gives one tensor, or a tuple of two or three. A child that gives something else runs in forward
// only; its block throws Error(invalid_argument) that names it. Throws the same if there are no
// children.
Model model_of(const std::shared_ptr<torch::nn::SequentialImpl>& net);
// The one tensor that the last block gave. Throws Error(invalid_argument) if there are several.
const at::Tensor& only_output(const std::vector<Block>& blocks, const Tensors& outputs);
// Throws Error(invalid_argument) that names the block if it gave no tensor, or an undefined one.
// Then nothing can be handed on.
void check_outputs(const Block& block, const Tensors& outputs);
// Throws Error(invalid_argument) that names the problem: no module or no forward; no input, or one
// twice; a block without forward; two blocks with one name; a parameter or buffer that is in no
// block. Tied tensors may be in several.
void check(const Model& model);

// Makes one replica's model. Called once for each replica from that replica's thread, with the
// same seed of torch's generator everywhere.
using ModelFactory = std::function<Model()>;

// A class derived from SequentialImpl that has no forward of its own. SequentialImpl's is a
// template, so that its address alone has no type.
template <typename Net>
concept PlainSequential = std::derived_from<Net, torch::nn::SequentialImpl> &&
                          !requires { typename std::type_identity<decltype(&Net::forward)>; };

// A factory for any module class with `at::Tensor forward(at::Tensor)`, and if the model may be
// cut also `std::vector<Block> blocks()`: model_factory<Net>(constructor arguments...). A
// Sequential needs no blocks(): see model_of(). Every replica copies the arguments, so they cannot
// be modules.
template <typename Net, typename... Args>
ModelFactory model_factory(Args... args) {
  return [args...] {
    auto net = std::make_shared<Net>(args...);
    Model model{net, [net](const at::Tensor& data) { return net->forward(data); }};
    if constexpr (requires { model.blocks = net->blocks(); })
      model.blocks = net->blocks();
    else if constexpr (PlainSequential<Net>)
      model = model_of(net);
    return model;
  };
}
// A first try that cannot work: the compiler's message says what does.
template <std::derived_from<torch::jit::Module> Script, typename... Args>
ModelFactory model_factory(Args...) {
  static_assert(!sizeof(Script),
                "model_factory takes a class derived from torch::nn::Module, and the Trainer no "
                "torch::jit::script::Module: trireme::Distributed<torch::optim::SGD> does, in a "
                "loop of your own");
  return nullptr;
}

}  // namespace trireme
