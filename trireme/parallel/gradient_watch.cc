#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>
#include <trireme/parallel/gradient_watch.h>

namespace trireme {

struct GradientWatch::State {
  using Accumulator =
      decltype(torch::autograd::impl::grad_accumulator(std::declval<const at::Tensor&>()));
  std::function<void(int)> ready;
  bool armed = false;
  // A parameter's own reference to its accumulator is weak. Without these references the hooks
  // would vanish with the first graph.
  std::vector<Accumulator> accumulators;
};

namespace {

class Hook : public torch::autograd::FunctionPostHook {
 public:
  explicit Hook(std::function<void()> call) : call_(std::move(call)) {}
  torch::autograd::variable_list operator()(const torch::autograd::variable_list& outputs,
                                            const torch::autograd::variable_list&) override {
    call_();
    return outputs;
  }

 private:
  std::function<void()> call_;
};

}  // namespace

GradientWatch::GradientWatch(const std::vector<at::Tensor>& parameters,
                             std::function<void(int)> ready)
    : state_(std::make_shared<State>()) {
  state_->ready = std::move(ready);
  for (size_t i = 0; i < parameters.size(); ++i) {
    if (!parameters[i].requires_grad()) continue;
    auto accumulator = torch::autograd::impl::grad_accumulator(parameters[i]);
    accumulator->add_post_hook(std::make_unique<Hook>([weak = std::weak_ptr<State>(state_), i] {
      const auto state = weak.lock();
      if (state && state->armed) state->ready(static_cast<int>(i));
    }));
    state_->accumulators.push_back(std::move(accumulator));
  }
}
GradientWatch::~GradientWatch() = default;
void GradientWatch::arm(bool on) { state_->armed = on; }

}  // namespace trireme
