#include <torch/csrc/autograd/function_hook.h>
#include <trireme/parallel/pipeline/backward_graph.h>
#include <algorithm>
#include <array>
#include <string_view>

namespace trireme::pipeline {

using torch::autograd::Edge;
using torch::autograd::edge_list;

namespace {

// Operations whose backward computes the gradient of each operand apart, and only those that are
// asked for.
constexpr std::array<std::string_view, 12> kSeparable = {
    "AddBackward0",     "AddbmmBackward0", "AddmmBackward0",       "AddmvBackward0",
    "BaddbmmBackward0", "BmmBackward0",    "ConvolutionBackward0", "LinearBackward0",
    "MmBackward0",      "MulBackward0",    "MvBackward0",          "SubBackward0"};

bool can_run_twice(torch::autograd::Node& node) {
  return !has_hooks(node) && std::ranges::find(kSeparable, node.name()) != kSeparable.end();
}

}  // namespace

bool has_hooks(torch::autograd::Node& node) {
  return !node.pre_hooks().empty() || !node.post_hooks().empty() ||
         !node.tensor_pre_hooks().empty() || !node.retains_grad_hooks().empty();
}

BackwardGraph::BackwardGraph(const edge_list& roots, const edge_list& inputs) {
  for (const Edge& root : roots) visit(root);
  find_way(inputs);
  join_components();
  sort_edges();
}

// Graphs are deep, so this does not recurse.
void BackwardGraph::visit(const Edge& root) {
  struct Frame {
    Edge edge;
    size_t next = 0;
  };
  std::vector<Frame> way;
  const auto enter = [&](const Edge& edge) {
    if (edge.is_valid() && places_.emplace(edge.function.get(), 0).second) way.push_back({edge});
  };
  enter(root);
  while (!way.empty()) {
    Frame& frame = way.back();
    const edge_list& edges = frame.edge.function->next_edges();
    if (frame.next < edges.size()) {
      enter(edges[frame.next++]);
      continue;
    }
    places_[frame.edge.function.get()] = nodes_.size();
    nodes_.push_back(std::move(frame.edge));
    way.pop_back();
  }
}

void BackwardGraph::find_way(const edge_list& inputs) {
  leads_to_input_.assign(nodes_.size(), false);
  for (const Edge& input : inputs) {
    const auto found = places_.find(input.function.get());
    if (found != places_.end()) leads_to_input_[found->second] = true;
  }
  for (size_t i = 0; i < nodes_.size(); ++i)
    for (const Edge& edge : nodes_[i].function->next_edges())
      if (edge.is_valid() && leads_to_input_[place(edge)]) leads_to_input_[i] = true;
}

void BackwardGraph::join_components() {
  const auto last = [this](size_t at) {
    while (component_[at] != at) {
      component_[at] = component_[component_[at]];  // Keeps the way short for later calls.
      at = component_[at];
    }
    return at;
  };
  for (size_t i = 0; i < nodes_.size(); ++i) {
    component_.push_back(i);
    if (leads_to_input_[i]) continue;
    for (const Edge& edge : nodes_[i].function->next_edges())
      if (edge.is_valid()) component_[last(place(edge))] = i;
  }
  for (size_t i = 0; i < nodes_.size(); ++i) component_[i] = last(i);
}

// A component waits unless an operation on the way that cannot run twice leads to it.
void BackwardGraph::sort_edges() {
  const auto for_each_edge_aside = [this](size_t node, const auto& call) {
    const edge_list& edges = nodes_[node].function->next_edges();
    for (size_t k = 0; k < edges.size(); ++k)
      if (edges[k].is_valid() && !leads_to_input_[place(edges[k])])
        call(k, component_[place(edges[k])]);
  };
  waits_.assign(nodes_.size(), true);
  for (size_t i = 0; i < nodes_.size(); ++i)
    if (leads_to_input_[i] && !can_run_twice(*nodes_[i].function))
      for_each_edge_aside(i, [&](size_t, size_t component) { waits_[component] = false; });
  for (size_t i = 0; i < nodes_.size(); ++i) {
    if (leads_to_input_[i]) {
      OnTheWay node{nodes_[i], {}};
      for_each_edge_aside(i, [&](size_t k, size_t component) {
        if (waits_[component])
          node.deferred.push_back(k);
        else
          node.at_once = true;
      });
      on_the_way_.push_back(std::move(node));
    } else if (!waits_[component_[i]]) {
      beside_.push_back(nodes_[i]);
    }
  }
}

bool BackwardGraph::waits(const Node* node) const {
  const size_t at = places_.at(node);
  return !leads_to_input_[at] && waits_[component_[at]];
}

}  // namespace trireme::pipeline
