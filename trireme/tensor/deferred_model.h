// Deferred initialisation: a model is made by its ordinary factory, but only those of its tensors
// that a rank owns ever get memory. They have bit for bit the values that the factory would have
// given them.
//
// The factory runs twice. The first run makes hollow tensors (tensor/hollow.h) and records which
// operation read and wrote which storage; it draws no random numbers. materialise() runs the
// factory again. There the operations that the wanted tensors depend on run as usual, and the
// others only draw the random numbers that they would have drawn. The memory then moves from the
// second module's tensors to the first one's. Making tensors without
// memory below autograd, and recording their operations, is known from torchdistX.
#pragma once
#include <ATen/core/Tensor.h>
#include <trireme/tensor/construction_pass.h>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

namespace torch::nn {
class Module;
}

namespace trireme {

// Used only by the thread that makes it; several threads may have one each.
class DeferredModel {
 public:
  // Makes a module as the model's factory does, conversions of its type included, so that nothing
  // changes its tensors' storages later. It is called more than once and must do the same each
  // time; tensors that it takes from elsewhere are read and never changed. A `Model` of the room
  // `parallel` keeps what the first call made:
  //   Model model;
  //   DeferredModel deferred([&] {
  //     Model made = factory();
  //     prepare_for_training(*made.module, dtype);
  //     if (!model.module) model = made;
  //     return made.module;
  //   });
  using Make = std::function<std::shared_ptr<torch::nn::Module>()>;

  // Runs `make` once. Afterwards the module is hollow, and the thread's random numbers are where
  // they were. If `make` looks at the values of its tensors (item(), data_ptr(), an operation
  // whose result has a size that depends on values), the whole model must be allocated while it is
  // made. A warning then says so, and the result is the same.
  explicit DeferredModel(Make make);

  const std::shared_ptr<torch::nn::Module>& module() const { return module_; }
  // Why the whole model is allocated while it is made; empty if it is not.
  const std::string& obstacle() const { return obstacle_; }

  // Gives these parameters and buffers of module() memory and their initial values. The first call
  // also does so for tensors that the module holds without having registered them, and leaves the
  // generators as an ordinary construction does; later calls leave them untouched. Tensors that
  // have memory stay as they are. Throws Error(invalid_argument) for a name that the module does
  // not have, and Error(unsupported) if `make` made another model than the first time.
  void materialise(const std::set<std::string>& names);

  // Makes these parameters and buffers hollow, and with them all tensors that share their
  // storages. Throws as materialise() does for a name.
  void release(const std::set<std::string>& names);

 private:
  void record();
  std::set<int> numbers_of(const std::set<std::string>& names) const;
  std::unique_ptr<ConstructionPass> make_again(const std::set<int>& wanted);

  Make make_;
  std::shared_ptr<torch::nn::Module> module_;
  std::unique_ptr<ConstructionPass> recording_;
  std::string obstacle_;
  std::set<int> unregistered_;  // Storages that are hollow and held by no parameter or buffer.
  bool is_first_ = true;
};

}  // namespace trireme
