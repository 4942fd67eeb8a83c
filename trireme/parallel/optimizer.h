// Optimizers that are chosen by options, and optimizer state by name.
#pragma once
#include <ATen/core/Tensor.h>
#include <trireme/base/json.h>
#include <trireme/parallel/module_state.h>
#include <functional>
#include <memory>
#include <string>
#include <typeinfo>
#include <vector>

namespace torch::optim {
class Optimizer;
}

namespace trireme {

// An optimizer that derives from one of LibTorch's says here that it steps as that one does
// (distributed.h).
class SteppingAs {
 public:
  explicit SteppingAs(const std::type_info& kind) : kind_(kind) {}
  virtual ~SteppingAs() = default;
  const std::type_info& kind() const { return kind_; }

 private:
  const std::type_info& kind_;
};
// The class that a SteppingAs steps as, or else that of the object.
const std::type_info& class_of(torch::optim::Optimizer& optimizer);

// Makes an optimizer over a replica's trainable parameters. Write a factory of your own for
// parameter groups or for an optimizer of your own.
using OptimizerFactory = std::function<std::shared_ptr<torch::optim::Optimizer>(
    const std::vector<NamedTensor>& parameters)>;

// The common optimizers by their options, with torch::optim's meaning and defaults: `SGD{.lr =
// 0.1, .momentum = 0.9}`.
struct SGD {
  double lr = 1e-3, momentum = 0, dampening = 0, weight_decay = 0;
  bool nesterov = false;
  operator OptimizerFactory() const;
};
struct Adam {
  double lr = 1e-3, beta1 = 0.9, beta2 = 0.999, eps = 1e-8, weight_decay = 0;
  bool amsgrad = false;
  operator OptimizerFactory() const;
};
struct AdamW {
  double lr = 1e-3, beta1 = 0.9, beta2 = 0.999, eps = 1e-8, weight_decay = 1e-2;
  bool amsgrad = false;
  operator OptimizerFactory() const;
};
struct RMSprop {
  double lr = 1e-2, alpha = 0.99, eps = 1e-8, weight_decay = 0, momentum = 0;
  bool centered = false;
  operator OptimizerFactory() const;
};
struct Adagrad {
  double lr = 1e-2, lr_decay = 0, weight_decay = 0, eps = 1e-10;
  operator OptimizerFactory() const;
};
// layerwise.h defines Lars and Lamb.
struct Lars {
  double lr = 0.1, momentum = 0.9, weight_decay = 0, trust = 1e-3;
  operator OptimizerFactory() const;
};
struct Lamb {
  double lr = 1e-3, beta1 = 0.9, beta2 = 0.999, eps = 1e-6, weight_decay = 0;
  operator OptimizerFactory() const;
};

// The facts that must be alike on all ranks: the optimizer's kind, and options and number of
// parameters of each group. Of an optimizer that is none of the kinds above, of its options only
// the learning rate.
Json facts_of(torch::optim::Optimizer& optimizer);
// The same options with a hash of each one's values in all groups. It is cheap enough for each
// step.
struct OptionHash {
  const char* name;
  uint64_t value;
};
std::vector<OptionHash> hashes_of_options(const torch::optim::Optimizer& optimizer);

// "SGD", "Adam", ..., or "opaque" for a kind that is not listed above.
std::string kind_of(const torch::optim::Optimizer& optimizer);

// An optimizer's state: tensors named "exp_avg/<parameter>", and counters. The state of SGD, Adam,
// AdamW, RMSprop, Adagrad, Lars and Lamb is split into named tensors, so that other tools can read
// it. Any other optimizer's state is one opaque tensor with the bytes of its archive, and loads
// into the same kind only.
struct OptimizerState {
  std::string kind;  // See kind_of().
  std::vector<NamedTensor> tensors;
  Json counters = Json::object();  // {"step": {"<parameter>": 12}}
};
OptimizerState state_of(torch::optim::Optimizer& optimizer,
                        const std::vector<NamedTensor>& parameters);
// Replaces the parameters' state by the saved one: a parameter without saved state then has none.
// Throws Error(invalid_argument) naming the kind or parameter if the state belongs to another
// optimizer or model.
void load_state(torch::optim::Optimizer& optimizer, const std::vector<NamedTensor>& parameters,
                const OptimizerState& state);

}  // namespace trireme
