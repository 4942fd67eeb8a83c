// A loop as it stands in one process: the optimizer's own step, bit for bit, and the mistakes that
// would train wrongly in a job of several processes (own_steps.h).
#pragma once
#include <trireme/parallel/gradient_watch.h>
#include <trireme/parallel/own_checks.h>
#include <trireme/parallel/own_steps.h>
#include <memory>
#include <vector>

namespace trireme {

// The thread of the loop uses it.
class LoneSteps : public std::enable_shared_from_this<LoneSteps> {
 public:
  // `optimizer` outlives the object. Throws Error(invalid_argument) naming a parameter of the
  // optimizer that is not of the module.
  LoneSteps(std::shared_ptr<OwnLoop> loop, std::shared_ptr<torch::nn::Module> module,
            torch::optim::Optimizer& optimizer, const OwnStepsOptions& options);

  at::Tensor step(const OwnSteps::Closure& closure,
                  const std::function<at::Tensor(OwnSteps::Closure)>& own);
  std::shared_ptr<void> no_sync();

 private:
  void reach(int parameter);
  void refuse(ParameterChange found) const;
  void require_gradients();
  void require_own_parameters();

  const std::shared_ptr<OwnLoop> loop_;
  const std::shared_ptr<torch::nn::Module> module_;
  torch::optim::Optimizer& optimizer_;
  const std::vector<NamedTensor> parameters_;
  ParameterForms forms_;
  OwnChecks checks_;
  GradientWatch watch_;
  size_t known_of_optimizer_ = 0;  // The number of its parameters at the last look.
  int quiet_ = 0;                  // The no_sync() objects that live.
  int reached_by_ = -1;            // The last backward that reached a parameter.
  bool has_gradients_ = false;     // Since the last step a backward has left gradients.
  bool has_quiet_alone_ = false;   // The last one was under no_sync().
  int64_t steps_ = 0;
};

}  // namespace trireme
