#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <trireme/base/error.h>
#include <trireme/parallel/pipeline/backward_graph.h>
#include <trireme/parallel/pipeline/gradient_sums.h>
#include <trireme/parallel/pipeline/split_backward.h>
#include <trireme/tensor/saved_tensors.h>
#include <algorithm>
#include <iterator>
#include <set>

namespace trireme::pipeline {

using torch::autograd::Edge;
using torch::autograd::edge_list;
using torch::autograd::Node;
using torch::autograd::variable_list;

namespace {

[[noreturn]] void refuse_split(const std::string& what, const std::string& remedy) {
  throw Error(ErrorCode::invalid_argument, "parallel", "split backward: " + what, remedy);
}

void check_split_inputs(const Tensors& inputs) {
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (!inputs[i].defined())
      refuse_split(fmt::format("input {} is undefined", i), "leave it out of the inputs");
    if (!inputs[i].is_leaf())
      refuse_split(fmt::format("input {} was itself computed from other tensors", i),
                   "detach() it before forward, and give it requires_grad");
    for (size_t j = 0; j < i; ++j)
      if (inputs[j].is_same(inputs[i]))
        refuse_split(fmt::format("inputs {} and {} are the same tensor", j, i), "name it once");
  }
}

void check_split_outputs(const Tensors& outputs, const Tensors& gradients) {
  if (outputs.size() != gradients.size())
    refuse_split(
        fmt::format("there are {} outputs and {} gradients", outputs.size(), gradients.size()),
        "pass one gradient for each output, undefined where there is none");
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (!outputs[i].defined() || !gradients[i].defined()) continue;
    if (outputs[i].sizes() != gradients[i].sizes())
      refuse_split(
          fmt::format("output {} has shape [{}], its gradient has [{}]", i,
                      fmt::join(outputs[i].sizes(), ", "), fmt::join(gradients[i].sizes(), ", ")),
          "pass a gradient of the output's shape");
  }
}

// Nodes at which a run of the engine starts, and the gradients there.
struct EngineStart {
  edge_list edges;
  variable_list gradients;

  std::vector<ActivationBytes::Hold> holds;  // They end before the gradients do.

  void add(const Edge& edge, at::Tensor gradient) {
    if (!gradient.defined()) return;
    edges.push_back(edge);
    gradients.push_back(std::move(gradient));
  }
  void run(bool keep_graph) const {
    if (edges.empty()) return;
    torch::autograd::Engine::get_default_engine().execute(edges, gradients, keep_graph,
                                                          /*create_graph=*/false,
                                                          /*accumulate_grad=*/true);
  }
};

// A deferred operation between the halves.
struct DeferredNode {
  Edge node;
  std::vector<std::pair<size_t, Edge>> edges;  // Those that wait, by their position.
  variable_list gradients;                     // The ones that arrived at the operation.
  std::vector<ActivationBytes::Hold> holds;
  size_t block = 0;  // See SplitWatch.
};

std::vector<ActivationBytes::Hold> holds_of(const variable_list& gradients,
                                            const SplitWatch& watch) {
  std::vector<ActivationBytes::Hold> holds;
  for (const at::Tensor& gradient : gradients)
    if (watch.hold && gradient.has_storage()) holds.push_back(watch.hold(gradient.storage()));
  return holds;
}

// Keeps the gradients that arrive at an operation.
class KeepHook : public torch::autograd::FunctionPreHook {
 public:
  KeepHook(DeferredNode& node, const SplitWatch& watch) : node_(node), watch_(watch) {}
  variable_list operator()(const variable_list& gradients) override {
    if (watch_.block) node_.block = watch_.block();
    node_.holds = holds_of(gradients, watch_);
    return node_.gradients = gradients;
  }

 private:
  DeferredNode& node_;
  const SplitWatch& watch_;
};

// Reports that the second half comes to an operation.
class VisitHook : public torch::autograd::FunctionPreHook {
 public:
  VisitHook(std::function<void(size_t)> before, size_t block)
      : before_(std::move(before)), block_(block) {}
  variable_list operator()(const variable_list& gradients) override {
    before_(block_);
    return gradients;
  }

 private:
  const std::function<void(size_t)> before_;
  const size_t block_;
};

// Frees the saved tensors of an operation when it has run. The operation owns the hook.
class FreeHook : public torch::autograd::FunctionPostHook {
 public:
  explicit FreeHook(Node& node) : node_(node) {}
  variable_list operator()(const variable_list& outputs, const variable_list&) override {
    node_.release_variables();
    return outputs;
  }

 private:
  Node& node_;
};

// Gives the inputs their former gradients back.
class InputGradients {
 public:
  explicit InputGradients(const Tensors& inputs) : inputs_(inputs) {
    for (const at::Tensor& input : inputs) former_.push_back(std::exchange(grad(input), {}));
  }
  ~InputGradients() { take(); }
  InputGradients(const InputGradients&) = delete;
  InputGradients& operator=(const InputGradients&) = delete;

  // Returns the gradients that the inputs have got since.
  Tensors take() {
    Tensors gradients;
    for (size_t i = 0; i < former_.size(); ++i)
      gradients.push_back(std::exchange(grad(inputs_[i]), std::move(former_[i])));
    former_.clear();
    return gradients;
  }

 private:
  static at::Tensor& grad(const at::Tensor& input) { return input.mutable_grad(); }
  const Tensors& inputs_;
  Tensors former_;
};

void cut_edges(Node& node) {
  for (Edge& edge : node.next_edges()) edge = Edge();
}

}  // namespace

struct SplitBackward::State {
  enum class Done { nothing, inputs, all };
  Done done = Done::nothing;
  Tensors inputs;
  EngineStart first, second;
  std::vector<DeferredNode> deferred;
  edge_list others;  // Those that the first half runs to the end.
  int at_once = 0, deferred_count = 0;
  SplitWatch watch;

  void sort(const BackwardGraph& graph);
  // The graph of the first half is the graph without the edges that wait.
  void prepare_first();
  // The graph of the second half consists of these edges and what lies behind them.
  void prepare_second();
  void remove_hooks();
};

void SplitBackward::State::sort(const BackwardGraph& graph) {
  others = graph.beside();
  for (const OnTheWay& node : graph.on_the_way()) {
    at_once += node.at_once;
    if (node.deferred.empty()) {
      others.push_back(node.node);
      continue;
    }
    DeferredNode one{node.node, {}, {}, {}, 0};
    for (const size_t k : node.deferred)
      one.edges.emplace_back(k, node.node.function->next_edge(k));
    deferred.push_back(std::move(one));
  }
  deferred_count = static_cast<int>(deferred.size());
}

void SplitBackward::State::prepare_first() {
  for (DeferredNode& one : deferred) {
    for (const auto& [k, edge] : one.edges) one.node.function->next_edges()[k] = Edge();
    one.node.function->add_pre_hook(std::make_unique<KeepHook>(one, watch));
  }
  for (const Edge& other : others) {
    // Accumulators outlive the graph and save nothing.
    if (other.function->num_outputs() == 0) continue;
    other.function->add_post_hook(std::make_unique<FreeHook>(*other.function));
  }
}

void SplitBackward::State::remove_hooks() {
  for (const DeferredNode& one : deferred) one.node.function->pre_hooks().clear();
}

void SplitBackward::State::prepare_second() {
  // Without these edges an operation is freed as soon as no one else holds it.
  for (const Edge& other : others) cut_edges(*other.function);
  others.clear();
  for (DeferredNode& one : deferred) {
    cut_edges(*one.node.function);
    for (auto& [k, edge] : one.edges) one.node.function->next_edges()[k] = std::move(edge);
    if (watch.before)
      one.node.function->add_pre_hook(std::make_unique<VisitHook>(watch.before, one.block));
    std::ranges::move(one.holds, std::back_inserter(second.holds));
    for (size_t i = 0; i < one.gradients.size(); ++i)
      second.add({one.node.function, static_cast<uint32_t>(i)}, one.gradients[i]);
  }
  deferred.clear();
}

SplitBackward::SplitBackward(const Tensors& outputs, const Tensors& gradients,
                             const Tensors& inputs, SplitWatch watch)
    : state_(std::make_unique<State>()) {
  state_->watch = std::move(watch);
  check_split_inputs(inputs);
  check_split_outputs(outputs, gradients);
  state_->inputs = inputs;
  EngineStart roots;
  for (size_t i = 0; i < outputs.size(); ++i)
    if (outputs[i].defined() && outputs[i].requires_grad())
      roots.add(torch::autograd::impl::gradient_edge(outputs[i]), gradients[i]);
  edge_list ends;
  for (const at::Tensor& input : inputs)
    if (input.requires_grad()) ends.push_back(torch::autograd::impl::gradient_edge(input));
  const BackwardGraph graph(roots.edges, ends);
  for (size_t i = 0; i < roots.edges.size(); ++i) {
    const bool waits = graph.waits(roots.edges[i].function.get());
    (waits ? state_->second : state_->first).add(roots.edges[i], roots.gradients[i]);
  }
  state_->second.holds = holds_of(state_->second.gradients, state_->watch);
  state_->sort(graph);
}
SplitBackward::~SplitBackward() = default;
SplitBackward::SplitBackward(SplitBackward&&) noexcept = default;
SplitBackward& SplitBackward::operator=(SplitBackward&&) noexcept = default;

Tensors SplitBackward::input_gradients() {
  State& state = *state_;
  if (state.done != State::Done::nothing)
    refuse_split("the gradients of the inputs were computed before",
                 "call input_gradients() once for each micro-batch");
  state.done = State::Done::all;  // If the first half throws, there is no second one.
  Tensors result;
  {
    InputGradients apart(state.inputs);
    struct HooksOff {
      State& state;
      ~HooksOff() { state.remove_hooks(); }
    } hooks_off{state};
    state.prepare_first();
    const FirstOfTwoBackwards first;
    state.first.run(/*keep_graph=*/true);
    result = apart.take();
  }
  state.prepare_second();
  state.first = {};
  state.inputs.clear();
  state.done = State::Done::inputs;
  return result;
}

void SplitBackward::weight_gradients() {
  State& state = *state_;
  if (state.done != State::Done::inputs)
    refuse_split(state.done == State::Done::nothing
                     ? "the gradients of the parameters need those of the inputs first"
                     : "there is nothing left to compute",
                 "call input_gradients(), then weight_gradients(), once for each micro-batch");
  state.done = State::Done::all;
  const EngineStart second = std::exchange(state.second, {});
  add_within_products(second.edges);
  second.run(/*keep_graph=*/false);
}

int SplitBackward::deferred() const { return state_->deferred_count; }
int SplitBackward::at_once() const { return state_->at_once; }
int64_t SplitBackward::kept_bytes() const {
  std::set<const void*> counted;
  int64_t bytes = 0;
  for (const at::Tensor& gradient : state_->second.gradients)
    if (gradient.has_storage() && counted.insert(gradient.storage().unsafeGetStorageImpl()).second)
      bytes += static_cast<int64_t>(gradient.storage().nbytes());
  return bytes;
}

}  // namespace trireme::pipeline
