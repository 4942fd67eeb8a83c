#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/zeros_like.h>

#include <trireme/parallel/counted_gradients.h>
#include <trireme/tensor/autograd_engine.h>
#include <algorithm>
#include <ranges>
#include <unordered_set>
#include <utility>

namespace trireme {

struct CountedGradients::State {
  // A .grad as backward has left it. Another tensor or version: the loop has written it.
  struct Mark {
    at::Tensor gradient;
    uint32_t version = 0;
  };

  std::vector<at::Tensor> parameters;
  Callbacks callbacks;
  std::vector<at::Tensor> aside = {};  // By parameter; empty if nothing lies aside.
  std::vector<Mark> marks = {};        // The same, from one backward to the next.
  bool is_in_backward = false;

  static std::function<void()> begin_backward();
  void begin();
  void end();
  void put_back();
  void mark();
  void look_for_writes();
  std::vector<bool> of_others() const;
  bool shares_with(const State& other) const;

  using List = std::vector<std::shared_ptr<State>>;
  static List living();
  static thread_local std::vector<std::weak_ptr<State>> of_this_thread;
};

thread_local std::vector<std::weak_ptr<CountedGradients::State>>
    CountedGradients::State::of_this_thread;

CountedGradients::State::List CountedGradients::State::living() {
  std::erase_if(of_this_thread, [](const auto& each) { return each.expired(); });
  List all;
  for (const auto& each : of_this_thread) all.push_back(each.lock());
  return all;
}

std::function<void()> CountedGradients::State::begin_backward() {
  List begun;
  // An engine may have a parameter that another one before it has laid aside.
  const auto end = [](const List& engines) {
    for (const auto& each : engines | std::views::reverse) each->end();
  };
  try {
    for (const auto& each : living()) {
      each->begin();
      begun.push_back(each);
    }
  } catch (...) {
    end(begun);
    throw;
  }
  return [begun, end] { end(begun); };
}

void CountedGradients::State::begin() {
  look_for_writes();
  const bool lies_aside = callbacks.lie_aside();
  if (!lies_aside) {
    put_back();
  } else if (aside.empty()) {
    const std::vector<bool> others = of_others();
    for (size_t p = 0; p < parameters.size(); ++p)
      aside.push_back(others[p] ? at::Tensor()
                                : std::exchange(parameters[p].mutable_grad(), at::Tensor()));
    if (std::ranges::none_of(aside, [](const at::Tensor& each) { return each.defined(); }))
      aside.clear();
  }
  marks.clear();
  is_in_backward = true;
}

void CountedGradients::State::end() {
  is_in_backward = false;
  callbacks.has_own_alone() ? mark() : put_back();
}

// In place, as autograd adds, unless they are functions of the parameters (create_graph).
void CountedGradients::State::put_back() {
  for (size_t p = 0; p < aside.size(); ++p) {
    at::Tensor& counted = aside[p];
    if (!counted.defined()) continue;
    at::Tensor& gradient = parameters[p].mutable_grad();
    const bool has_graph =
        counted.requires_grad() || (gradient.defined() && gradient.requires_grad());
    const at::AutoGradMode with_graph(has_graph);
    if (gradient.defined()) counted = has_graph ? counted + gradient : counted.add_(gradient);
    gradient = counted;
  }
  aside.clear();
}

// A parameter without gradients gets zeros, so that zero_grad() shows.
void CountedGradients::State::mark() {
  marks.assign(aside.size(), {});
  for (size_t p = 0; p < aside.size(); ++p) {
    if (!aside[p].defined()) continue;
    at::Tensor& gradient = parameters[p].mutable_grad();
    if (!gradient.defined()) gradient = at::zeros_like(aside[p].detach());
    marks[p] = {gradient, static_cast<uint32_t>(gradient._version())};
  }
}

// After zero_grad() the gradients that lie aside are gone too.
void CountedGradients::State::look_for_writes() {
  for (size_t p = 0; p < marks.size(); ++p) {
    if (!aside[p].defined()) continue;
    const at::Tensor& gradient = parameters[p].grad();
    if (gradient.is_same(marks[p].gradient) &&
        static_cast<uint32_t>(gradient._version()) == marks[p].version)
      continue;
    const at::NoGradGuard no_grad;
    if (gradient.defined() &&
        (gradient.is_sparse() ? gradient.to_dense() : gradient).any().item<bool>())
      callbacks.refuse_writes();
    aside[p].reset();
  }
}

// By parameter: whether an engine before this one has it.
std::vector<bool> CountedGradients::State::of_others() const {
  std::unordered_set<const void*> known;
  for (const auto& each : living()) {
    if (each.get() == this) break;
    for (const at::Tensor& parameter : each->parameters)
      known.insert(parameter.unsafeGetTensorImpl());
  }
  std::vector<bool> others;
  for (const at::Tensor& parameter : parameters)
    others.push_back(known.contains(parameter.unsafeGetTensorImpl()));
  return others;
}

bool CountedGradients::State::shares_with(const State& other) const {
  std::unordered_set<const void*> known;
  for (const at::Tensor& parameter : other.parameters)
    known.insert(parameter.unsafeGetTensorImpl());
  return std::ranges::any_of(parameters, [&](const at::Tensor& parameter) {
    return known.contains(parameter.unsafeGetTensorImpl());
  });
}

CountedGradients::CountedGradients(std::vector<at::Tensor> parameters, Callbacks callbacks)
    : state_(std::make_shared<State>(
          State{.parameters = std::move(parameters), .callbacks = std::move(callbacks)})) {}
CountedGradients::~CountedGradients() = default;

void CountedGradients::begin() {
  if (std::exchange(has_begun_, true)) return;
  State::of_this_thread.push_back(state_);
  if (install_autograd_engine()) threads_autograd().backward_begins = &State::begin_backward;
}

bool CountedGradients::has_seen_backward() const { return state_->is_in_backward; }
bool CountedGradients::lie_there() const { return !state_->aside.empty(); }

void CountedGradients::forget() {
  state_->aside.clear();
  state_->marks.clear();
}

void CountedGradients::multiply(double factor) {
  state_->look_for_writes();
  const at::NoGradGuard no_grad;
  const std::vector<bool> others = state_->of_others();
  for (size_t p = 0; p < others.size(); ++p)
    if (at::Tensor& gradient = state_->parameters[p].mutable_grad();
        gradient.defined() && !others[p])
      gradient.mul_(factor);
  state_->mark();
}

bool CountedGradients::differs_in_quiet() const {
  const bool own = state_->callbacks.is_quiet();
  return std::ranges::any_of(State::living(), [&](const auto& each) {
    return each->callbacks.is_quiet() != own && each->shares_with(*state_);
  });
}

std::shared_ptr<void> CountedGradients::leave_to_others() {
  const std::vector<bool> others = state_->of_others();
  std::vector<std::pair<at::Tensor, at::Tensor>> left;
  for (size_t p = 0; p < others.size(); ++p)
    if (others[p])
      left.emplace_back(state_->parameters[p],
                        std::exchange(state_->parameters[p].mutable_grad(), at::Tensor()));
  return {nullptr, [left](void*) {
            for (const auto& [parameter, gradient] : left) parameter.mutable_grad() = gradient;
          }};
}

}  // namespace trireme
