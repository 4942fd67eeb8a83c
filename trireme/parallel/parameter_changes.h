// Changes of parameters that user code made after the engine was made, and calls, that the engine
// cannot follow. Each rank looks for them before a step. A found change travels with the facts of
// the step, so that every rank ends with the same message.
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
  layout,    // It is no longer contiguous.
  unfrozen,  // It was frozen and has a gradient.
  replaced,  // The module has another trainable parameter under its name.
  unknown,   // The module has a trainable parameter under a name that the engine was not given.
  // The next changes are those of shared parameters only.
  moved,      // It has another storage.
  rewritten,  // It has other values.
  // The next changes are mistakes in the calls of a loop of the user's own.
  no_backward,       // It came to step() without a backward().
  own_alone,         // It came to step() after a backward() under no_sync().
  negative_samples,  // It gave a loss over less than 0 samples.
  no_scalar,         // It gave a loss of several elements, or of none.
  not_finite,        // A gradient is NaN or infinite.
  bad_parameter,     // A parameter has values that are.
  no_gradients,      // It came to step() when all gradients had been cleared.
  trained_apart,     // It trains a tensor that no engine has.
  past_engine,       // Its parameters are written again and again, and step() is not called.
  past_replica,      // The same, and the engine is a DataParallel.
  told,              // The rank itself tells the others what it has found (capi/step_checks.h).
};

struct ParameterChange {
  Change change = Change::none;
  // An index in the engine's list; for `unknown`, in the module's list. For `no_backward`,
  // `no_gradients` and `own_alone` the step, for `negative_samples` and `no_scalar` the number
  // that was given, for `trained_apart` the number of elements, for `past_engine` and
  // `past_replica` the step.
  int parameter = 0;
};

// `names` are those of the engine's list.
Error change_error(int rank, ParameterChange found, std::span<const std::string> names);
std::vector<std::string> names_of(const std::vector<NamedTensor>& tensors);

// A module's parameters as they were when the engine was made.
class ParameterForms {
 public:
  // Keeps a reference to the module. `parameters` are the module's own, each once.
  ParameterForms(const torch::nn::Module& module, std::vector<NamedTensor> parameters);
  // Finds a type, shape, device or layout that differs from before, with a few comparisons for
  // each parameter.
  ParameterChange find_new_form() const;
  // Finds those changes, a gradient of a frozen parameter, and parameters that were registered or
  // replaced. It looks for the latter in one of kStepsBetweenWalks steps, and whenever the number
  // of parameters without a gradient changes. Call it once before each step, on every rank.
  ParameterChange find_change();
  static constexpr int64_t kStepsBetweenWalks = 16;

 private:
  struct Form {
    at::ScalarType type;
    at::Device device;
    std::vector<int64_t> shape;
    bool trainable, contiguous;
  };
  ParameterChange find_foreign() const;

  const torch::nn::Module& module_;
  std::vector<NamedTensor> parameters_;
  std::vector<Form> forms_;
  int64_t looks_ = 0;
  int without_gradient_ = 0;  // The number of such parameters at the last look.
};

}  // namespace trireme
