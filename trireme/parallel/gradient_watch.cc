#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>
#include <trireme/parallel/gradient_watch.h>
#include <utility>

namespace trireme {

struct GradientWatch::State {
  std::function<void(int)> ready;
  bool armed = false;
};

namespace {

// Calls the watches of a parameter. LibTorch keeps one such hook for a tensor, which stays when
// torch::load() gives the tensor other memory; the node that accumulates its gradients does not.
class WatchesOfParameter : public torch::autograd::PostAccumulateGradHook {
 public:
  // `before` may be null.
  explicit WatchesOfParameter(std::unique_ptr<PostAccumulateGradHook> before)
      : before_(std::move(before)) {}
  void add(std::function<bool()> call) { calls_.push_back(std::move(call)); }
  void operator()(const torch::autograd::Variable& tensor) override {
    if (before_) (*before_)(tensor);
    std::erase_if(calls_, [](const std::function<bool()>& call) { return !call(); });
  }

 private:
  std::unique_ptr<PostAccumulateGradHook> before_;
  std::vector<std::function<bool()>> calls_;  // Each returns whether its watch is there.
};

}  // namespace

GradientWatch::GradientWatch(const std::vector<at::Tensor>& parameters,
                             std::function<void(int)> ready)
    : state_(std::make_shared<State>()) {
  state_->ready = std::move(ready);
  for (size_t i = 0; i < parameters.size(); ++i) {
    if (!parameters[i].requires_grad()) continue;
    auto& hook = torch::autograd::impl::post_acc_grad_hooks(parameters[i]);
    if (dynamic_cast<WatchesOfParameter*>(hook.get()) == nullptr)
      torch::autograd::impl::set_post_acc_grad_hooks(
          parameters[i], std::make_unique<WatchesOfParameter>(std::move(hook)));
    dynamic_cast<WatchesOfParameter&>(*torch::autograd::impl::post_acc_grad_hooks(parameters[i]))
        .add([weak = std::weak_ptr<State>(state_), i] {
          const auto state = weak.lock();
          if (state && state->armed) state->ready(static_cast<int>(i));
          return state != nullptr;
        });
  }
}
GradientWatch::~GradientWatch() = default;
void GradientWatch::arm(bool on) { state_->armed = on; }

}  // namespace trireme
