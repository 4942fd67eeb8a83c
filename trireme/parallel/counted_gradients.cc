#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/zeros_like.h>

#include <trireme/parallel/counted_gradients.h>
#include <trireme/parallel/module_state.h>
#include <trireme/tensor/autograd_engine.h>
#include <algorithm>
#include <mutex>
#include <ranges>
#include <unordered_set>
#include <utility>

namespace trireme {

struct CountedGradients::State {
  // A .grad as backward has left it. Another tensor, version or value: the loop has written it.
  // LibTorch's clip_grad_norm_() writes through .data(), which has a version of its own; that of
  // sparse gradients is not seen.
  struct Mark {
    at::Tensor gradient;
    uint32_t version = 0;
    uint64_t digest = 0;

    Mark() = default;
    explicit Mark(const at::Tensor& now)
        : gradient(now),
          version(static_cast<uint32_t>(now._version())),
          digest(now.layout() == at::kStrided ? digest_of({{"", now.detach()}}) : 0) {}
    bool is_of(const at::Tensor& now) const {
      return now.is_same(gradient) && static_cast<uint32_t>(now._version()) == version &&
             Mark(now).digest == digest;
    }
  };
  using List = std::vector<std::shared_ptr<State>>;
  // The engines of a thread, in the order in which they were made. Autograd's thread of a device
  // asks for them too.
  class Engines {
   public:
    List living();
    void add(const std::shared_ptr<State>& engine);
    void remove(const State* engine);

   private:
    std::mutex mutex_;
    std::vector<std::weak_ptr<State>> all_;
  };

  std::vector<at::Tensor> parameters;
  Callbacks callbacks;
  std::shared_ptr<Engines> engines = {};
  std::vector<at::Tensor> aside = {};  // By parameter; empty if nothing lies aside.
  std::vector<Mark> marks = {};        // The same, from one backward to the next.
  bool is_in_backward = false;

  static std::function<void()> begin_backward();
  void begin();
  void end();
  void put_back();
  void mark();
  void look_for_writes();
  void add_to(std::unordered_set<const void*>& known) const;
  std::vector<bool> of_others() const;
  bool shares_with(const State& other) const;

  static const std::shared_ptr<Engines>& of_this_thread();
  static void enter(const std::shared_ptr<State>& engine);
};

CountedGradients::State::List CountedGradients::State::Engines::living() {
  const std::lock_guard lock(mutex_);
  List living;
  for (const auto& each : all_)
    if (auto engine = each.lock()) living.push_back(std::move(engine));
  return living;
}
void CountedGradients::State::Engines::add(const std::shared_ptr<State>& engine) {
  const std::lock_guard lock(mutex_);
  std::erase_if(all_, [](const auto& each) { return each.expired(); });
  all_.push_back(engine);
}
void CountedGradients::State::Engines::remove(const State* engine) {
  const std::lock_guard lock(mutex_);
  std::erase_if(all_, [&](const auto& each) { return each.lock().get() == engine; });
}

const std::shared_ptr<CountedGradients::State::Engines>&
CountedGradients::State::of_this_thread() {
  static thread_local const auto engines = std::make_shared<Engines>();
  return engines;
}

// Makes the engine one of this thread, and of no other.
void CountedGradients::State::enter(const std::shared_ptr<State>& engine) {
  if (engine->engines == of_this_thread()) return;
  if (engine->engines) engine->engines->remove(engine.get());
  engine->engines = of_this_thread();
  engine->engines->add(engine);
}

std::function<void()> CountedGradients::State::begin_backward() {
  List begun;
  // An engine may have a parameter that another one before it has laid aside.
  const auto end = [](const List& all) {
    for (const auto& each : all | std::views::reverse) each->end();
  };
  try {
    for (const auto& each : of_this_thread()->living()) {
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

// Adds in place, as autograd does, unless gradients are functions of the parameters
// (create_graph).
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
    marks[p] = Mark(gradient);
  }
}

// After zero_grad() the gradients that lie aside are gone too.
void CountedGradients::State::look_for_writes() {
  for (size_t p = 0; p < marks.size(); ++p) {
    if (!aside[p].defined()) continue;
    const at::Tensor& gradient = parameters[p].grad();
    if (gradient.defined() && marks[p].is_of(gradient)) continue;
    const at::NoGradGuard no_grad;
    if (gradient.defined() &&
        (gradient.is_sparse() ? gradient.to_dense() : gradient).any().item<bool>())
      callbacks.refuse_writes();
    aside[p].reset();
  }
}

void CountedGradients::State::add_to(std::unordered_set<const void*>& known) const {
  for (const at::Tensor& parameter : parameters) known.insert(parameter.unsafeGetTensorImpl());
}

// By parameter: whether an engine before this one has it.
std::vector<bool> CountedGradients::State::of_others() const {
  std::unordered_set<const void*> known;
  for (const auto& each : engines->living()) {
    if (each.get() == this) break;
    each->add_to(known);
  }
  std::vector<bool> others;
  for (const at::Tensor& parameter : parameters)
    others.push_back(known.contains(parameter.unsafeGetTensorImpl()));
  return others;
}

bool CountedGradients::State::shares_with(const State& other) const {
  std::unordered_set<const void*> known;
  other.add_to(known);
  return std::ranges::any_of(parameters, [&](const at::Tensor& parameter) {
    return known.contains(parameter.unsafeGetTensorImpl());
  });
}

CountedGradients::CountedGradients(std::vector<at::Tensor> parameters, Callbacks callbacks)
    : state_(std::make_shared<State>(
          State{.parameters = std::move(parameters), .callbacks = std::move(callbacks)})) {
  State::enter(state_);
}
CountedGradients::~CountedGradients() = default;

void CountedGradients::begin() {
  if (std::exchange(has_begun_, true)) return;
  State::enter(state_);  // The loop may run on another thread than the one that has made it.
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
  return std::ranges::any_of(state_->engines->living(), [&](const auto& each) {
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
