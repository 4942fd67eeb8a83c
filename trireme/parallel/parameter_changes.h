// Changes of parameters that an engine cannot follow, because user code made them after the engine
// was made. Each rank looks for them before a step; what it found travels with the facts of the
// step, so that every rank ends with the same message.
#pragma once
#include <trireme/base/error.h>
#include <trireme/parallel/module_state.h>
#include <span>
#include <string>
#include <vector>

namespace trireme {

enum class Change : int {
  none,
  type,
  shape,
  device,
  layout,     // No longer contiguous.
  unfrozen,   // It has a gradient, and was frozen.
  unknown,    // The module has a trainable parameter that the engine was not given.
  moved,      // Shared parameters only, from here on: its storage is another one.
  rewritten,  // Its values are others.
};

struct ParameterChange {
  Change change = Change::none;
  int parameter = 0;  // Index in the engine's list; of an unknown one in the module's list.
};

// `names`: of the engine's list.
Error change_error(int rank, ParameterChange found, std::span<const std::string> names);
std::vector<std::string> names_of(const std::vector<NamedTensor>& tensors);

// A module's parameters as they were when the engine was made.
class ParameterForms {
 public:
  // Keeps a reference to the module. `parameters` are the module's own, each once.
  ParameterForms(const torch::nn::Module& module, std::vector<NamedTensor> parameters);
  // Another type, shape, device or layout than before; some comparisons for each parameter.
  ParameterChange find_new_form() const;
  // Those, and a gradient of a frozen parameter, and parameters that were registered or replaced;
  // these are looked for when the gradients that are missing become more or fewer, and else in one
  // step of kStepsBetweenWalks. Once before each step, on every rank.
  ParameterChange find_change();
  static constexpr int64_t kStepsBetweenWalks = 16;

 private:
  struct Form {
    at::ScalarType type;
    at::Device device;
    std::vector<int64_t> shape;
    bool trainable, contiguous;
  };
  ParameterChange find_unknown() const;

  const torch::nn::Module& module_;
  std::vector<NamedTensor> parameters_;
  std::vector<Form> forms_;
  int64_t looks_ = 0;
  int without_gradient_ = 0;  // Parameters, at the last look.
};

}  // namespace trireme
