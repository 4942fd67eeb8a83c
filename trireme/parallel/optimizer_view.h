// Shows an optimizer's state in a StateView, and takes saved state into it.
#pragma once
#include <trireme/parallel/optimizer.h>
#include <trireme/parallel/state_view.h>
#include <span>
#include <utility>
#include <vector>

namespace trireme {

class OptimizerView {
 public:
  // `optimizer` outlives the object. `parameters` are those that it updates, by the module's
  // names.
  OptimizerView(torch::optim::Optimizer& optimizer, std::vector<NamedTensor> parameters)
      : optimizer_(optimizer), parameters_(std::move(parameters)) {}

  // Adds the optimizer's tensors, and its kind and counters as the counter "optimizer".
  void show(EngineState& state) const;
  // See Engine::begin_load(): makes the tensors that `saved` names, uninitialised. Throws
  // Error(invalid_argument) if the state belongs to another kind of optimizer or to another model.
  void begin_load(const Json& counters, const std::vector<plan::TensorSpec>& saved);
  void end_load();

  std::vector<double> rates() const;
  void set_rates(std::span<const double> rates);

 private:
  torch::optim::Optimizer& optimizer_;
  std::vector<NamedTensor> parameters_;
  // State that is being loaded into an optimizer without names for it.
  OptimizerState incoming_;
};

}  // namespace trireme
