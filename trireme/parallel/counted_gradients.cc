#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>

#include <trireme/parallel/counted_gradients.h>
#include <trireme/tensor/autograd_engine.h>
#include <utility>

namespace trireme {

struct CountedGradients::State {
  std::vector<at::Tensor> parameters;
  Callbacks callbacks;
  std::vector<at::Tensor> aside = {};  // By parameter, while backward runs.

  static std::function<void()> begin_backward();
  void lie_aside();
  void put_back();

  static thread_local std::vector<std::weak_ptr<State>> of_this_thread;
};

thread_local std::vector<std::weak_ptr<CountedGradients::State>>
    CountedGradients::State::of_this_thread;

void CountedGradients::State::lie_aside() {
  aside.clear();  // A call for another engine has thrown.
  if (!callbacks.lie_aside()) return;
  for (const at::Tensor& parameter : parameters)
    aside.push_back(std::exchange(parameter.mutable_grad(), at::Tensor()));
}

// In place, as autograd adds, unless they are functions of the parameters (create_graph).
void CountedGradients::State::put_back() {
  const double factor = aside.empty() ? 1 : callbacks.factor();
  for (size_t p = 0; p < aside.size(); ++p) {
    at::Tensor& counted = aside[p];
    if (!counted.defined()) continue;
    at::Tensor& gradient = parameters[p].mutable_grad();
    const bool has_graph =
        counted.requires_grad() || (gradient.defined() && gradient.requires_grad());
    const at::AutoGradMode with_graph(has_graph);
    if (factor != 1) counted = has_graph ? counted * factor : counted.mul_(factor);
    if (gradient.defined()) counted = has_graph ? counted + gradient : counted.add_(gradient);
    gradient = counted;
  }
  aside.clear();
}

std::function<void()> CountedGradients::State::begin_backward() {
  std::erase_if(of_this_thread, [](const auto& each) { return each.expired(); });
  std::vector<std::shared_ptr<State>> living;
  for (const auto& each : of_this_thread) living.push_back(each.lock());
  for (const auto& each : living) each->lie_aside();
  return [living] {
    for (const auto& each : living) each->put_back();
  };
}

CountedGradients::CountedGradients(std::vector<at::Tensor> parameters, Callbacks callbacks)
    : state_(std::make_shared<State>(
          State{.parameters = std::move(parameters), .callbacks = std::move(callbacks)})) {}
CountedGradients::~CountedGradients() = default;

bool CountedGradients::begin() {
  if (has_begun_) return true;
  if (!install_autograd_engine()) return false;
  State::of_this_thread.push_back(state_);
  threads_autograd().backward_begins = &State::begin_backward;
  has_begun_ = true;
  return true;
}

}  // namespace trireme
