#include <torch/csrc/autograd/graph_task.h>
#include <torch/nn/module.h>
#include <torch/optim/optimizer.h>

#include <trireme/parallel/lone_steps.h>
#include <trireme/parallel/optimizer_groups.h>
#include <trireme/parallel/step_facts.h>
#include <trireme/parallel/updated_tensors.h>
#include <utility>

namespace trireme {
namespace {

// Nothing else can be found in one process.
OwnStepsOptions of_one_process(OwnStepsOptions options) {
  options.trains_apart = true;
  return options;
}

size_t count_parameters(const torch::optim::Optimizer& optimizer) {
  size_t count = 0;
  for (const auto& group : optimizer.param_groups()) count += group.params().size();
  return count;
}

}  // namespace

LoneSteps::LoneSteps(std::shared_ptr<OwnLoop> loop, std::shared_ptr<torch::nn::Module> module,
                     torch::optim::Optimizer& optimizer, const OwnStepsOptions& options)
    : loop_(std::move(loop)),
      module_(std::move(module)),
      optimizer_(optimizer),
      parameters_(state_of(*module_).parameters),
      forms_(*module_, parameters_),
      checks_(parameters_, of_one_process(options)),
      watch_(tensors_of(parameters_), [this](int parameter) { reach(parameter); }) {
  require_own_parameters();
  watch_.arm(true);
}

// Runs in backward, when a gradient has been accumulated.
void LoneSteps::reach(int parameter) {
  checks_.look_at(parameter);
  const int task = torch::autograd::get_current_graph_task_id();
  const bool is_first = std::exchange(reached_by_, task) != task;
  if (is_first) {
    loop_->require_not_left("backward()");
    loop_->require_elastic();
    loop_->enter(Phase::backward);
    has_gradients_ = true;
    has_quiet_alone_ = quiet_ > 0;
  }
  if (is_first || !checks_.saw_all_finite()) refuse(checks_.find(steps_ + 1));
}

void LoneSteps::refuse(ParameterChange found) const {
  if (found.change == Change::none) return;
  throw with_step(change_error(0, found, names_of(parameters_)), steps_ + 1);
}

void LoneSteps::require_gradients() {
  refuse(forms_.find_change());
  if (has_quiet_alone_) refuse({Change::own_alone, static_cast<int>(steps_ + 1)});
  if (!has_gradients_) refuse({Change::no_backward, static_cast<int>(steps_ + 1)});
  if (checks_.has_never_had_gradients())
    refuse({Change::no_gradients, static_cast<int>(steps_ + 1)});
}

void LoneSteps::require_own_parameters() {
  if (std::exchange(known_of_optimizer_, count_parameters(optimizer_)) !=
      count_parameters(optimizer_))
    require_parameters_of(parameters_, optimizer_, 0);
}

at::Tensor LoneSteps::step(const OwnSteps::Closure& closure,
                           const std::function<at::Tensor(OwnSteps::Closure)>& own) {
  require_own_parameters();
  if (!closure) require_gradients();
  loop_->enter(Phase::optimizer);
  const OwnSteps::Closure checked = [&] {
    has_gradients_ = false;  // Each evaluation has a backward() of its own.
    at::Tensor loss = closure();
    require_gradients();
    checks_.end_evaluation();
    return loss;
  };
  at::Tensor loss;
  checks_.update([&] { loss = own(closure ? checked : OwnSteps::Closure()); });
  ++steps_;
  has_gradients_ = false;
  checks_.end_step();
  return loss;
}

std::shared_ptr<void> LoneSteps::no_sync() {
  ++quiet_;
  return {nullptr, [self = shared_from_this()](void*) { --self->quiet_; }};
}

}  // namespace trireme
