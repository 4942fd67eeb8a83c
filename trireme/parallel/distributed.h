// One line makes a LibTorch training loop data parallel as it stands:
//
//   trireme::Distributed<torch::optim::SGD> optimizer(world, model,
//   torch::optim::SGDOptions(0.1));
//   ...
//   optimizer.zero_grad();
//   loss.backward();
//   optimizer.step();
//
// The result is a torch::optim::SGD: schedulers, parameter groups, closures and torch::save() take
// it as one. After backward() every .grad is the mean over the global batch (own_steps.h).
#pragma once
#include <torch/nn/module.h>
#include <torch/optim/optimizer.h>
#include <trireme/parallel/own_steps.h>
#include <trireme/parallel/script_module.h>
#include <concepts>
#include <memory>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

namespace trireme {

// Any model of LibTorch as a shared_ptr to its module: a module on the stack (which must outlive
// the result), a shared_ptr, a ModuleHolder, or a torch::jit::script::Module.
template <typename Model>
std::shared_ptr<torch::nn::Module> module_of(Model& model) {
  if constexpr (std::is_pointer_v<std::remove_cvref_t<Model>>)
    static_assert(!sizeof(Model),
                  "Distributed takes the model itself, not a pointer to it: `model` instead of "
                  "`&model`");
  else if constexpr (std::derived_from<Model, torch::nn::Module>)
    return {std::shared_ptr<void>(), &model};
  else if constexpr (requires { std::shared_ptr<torch::nn::Module>(model.ptr()); })
    return model.ptr();
  else if constexpr (requires { std::shared_ptr<torch::nn::Module>(model); })
    return model;
  else if constexpr (std::derived_from<Model, torch::jit::Module>)
    return module_of_script(model);
  else
    static_assert(!sizeof(Model),
                  "Distributed takes the model itself: a torch::nn::Module (on the stack, in a "
                  "shared_ptr or in a ModuleHolder) or a torch::jit::script::Module");
}

namespace detail {

template <typename T>
inline constexpr bool names_parameters =
    std::is_same_v<T, std::vector<at::Tensor>> ||
    std::is_same_v<T, std::vector<torch::optim::OptimizerParamGroup>>;

template <typename... Arguments>
inline constexpr bool first_names_parameters = false;
template <typename First, typename... Rest>
inline constexpr bool first_names_parameters<First, Rest...> =
    names_parameters<std::remove_cvref_t<First>>;

}  // namespace detail

// A first try that cannot work. It has the calls of a loop, so that the compiler says no more than
// this.
template <typename NoOptimizer>
class Distributed {
  static_assert(!sizeof(NoOptimizer),
                "Distributed takes the type of an optimizer: trireme::Distributed<"
                "torch::optim::SGD> optimizer(world, model, torch::optim::SGDOptions(0.1)). It is "
                "neither the type of its options, such as torch::optim::SGDOptions, nor "
                "trireme::SGD, which is for DataParallel");

 public:
  template <typename... Arguments>
  explicit Distributed(Arguments&&...) {}
  void zero_grad(bool = true) {}
  at::Tensor step(const torch::optim::Optimizer::LossClosure& = nullptr) { return {}; }
};

// `Optimizer` is a class derived from torch::optim::Optimizer, LibTorch's or one of your own.
template <std::derived_from<torch::optim::Optimizer> Optimizer>
class Distributed<Optimizer> : public Optimizer, public SteppingAs {
 public:
  // COLLECTIVE, unless the world is one process: it is then an Optimizer, bit for bit. `world` and
  // `model` outlive the object. `arguments` are those of the Optimizer's constructor. Its first
  // one, the parameters or the parameter groups, may be left out: it is then model.parameters().
  // Throws as DataParallel does: Error(invalid_argument) names two ranks and the first difference.
  template <typename Model, typename... Arguments>
  Distributed(World& world, Model&& model, Arguments&&... arguments)
      : Distributed(OwnStepsOptions(), world, std::forward<Model>(model),
                    std::forward<Arguments>(arguments)...) {}
  // The same with options of its own.
  template <typename Model, typename... Arguments>
    requires(!detail::first_names_parameters<Arguments...>)
  Distributed(const OwnStepsOptions& options, World& world, Model&& model,
              Arguments&&... arguments)
      : Optimizer(module_of(model)->parameters(), std::forward<Arguments>(arguments)...),
        SteppingAs(typeid(Optimizer)),
        steps_(world, module_of(model), *this, options) {}
  template <typename Model, typename... Arguments>
    requires(detail::first_names_parameters<Arguments...>)
  Distributed(const OwnStepsOptions& options, World& world, Model&& model,
              Arguments&&... arguments)
      : Optimizer(std::forward<Arguments>(arguments)...),
        SteppingAs(typeid(Optimizer)),
        steps_(world, module_of(model), *this, options) {}

  // First tries that cannot work: the compiler's message says what does.
  template <typename Model, std::derived_from<torch::optim::Optimizer> Made, typename... Rest>
    requires(!std::is_constructible_v<Optimizer, std::vector<at::Tensor>, Made&, Rest...>)
  Distributed(World&, Model&&, Made& made, Rest&&...) : Optimizer(made.parameters()) {
    static_assert(!sizeof(Made),
                  "Distributed is the optimizer, and makes it: trireme::Distributed<"
                  "torch::optim::SGD> optimizer(world, model, torch::optim::SGDOptions(0.1)) in "
                  "place of torch::optim::SGD optimizer(model->parameters(), ...)");
  }
  template <std::derived_from<torch::nn::Module> Module, typename... Rest>
  Distributed(Module&, Rest&&...) : Optimizer(std::vector<at::Tensor>()) {
    static_assert(!sizeof(Module),
                  "Distributed takes the World first: (world, model, options of the optimizer)");
  }

  using LossClosure = torch::optim::Optimizer::LossClosure;
  at::Tensor step(LossClosure closure = nullptr) override {
    return steps_.step(closure, [this](const LossClosure& own) { return Optimizer::step(own); });
  }

  // See OwnSteps.
  [[nodiscard]] std::shared_ptr<void> no_sync() { return steps_.no_sync(); }
  void join() { steps_.join(); }
  void sync() { steps_.sync(); }

 private:
  OwnSteps steps_;
};

}  // namespace trireme
