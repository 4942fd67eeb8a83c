// The operations that one backward reaches, and which of them can wait for its second half.
#pragma once
#include <torch/csrc/autograd/edge.h>
#include <torch/csrc/autograd/function.h>
#include <unordered_map>
#include <vector>

namespace trireme::pipeline {

// An operation on the way from the outputs to the inputs, as an edge because that owns it on all
// versions of LibTorch.
struct OnTheWay {
  torch::autograd::Edge node;
  // The positions of its edges to parameters that wait for the second half.
  std::vector<size_t> deferred;
  // Some of its edges to parameters do not wait.
  bool at_once = false;
};

// Whether hooks of anyone are called when the operation runs in backward.
bool has_hooks(torch::autograd::Node& node);

class BackwardGraph {
 public:
  using Node = torch::autograd::Node;
  // `roots` lead to the outputs' operations, `inputs` to the accumulators of the inputs.
  BackwardGraph(const torch::autograd::edge_list& roots, const torch::autograd::edge_list& inputs);

  // The nodes that lead to an input.
  const std::vector<OnTheWay>& on_the_way() const { return on_the_way_; }
  // The other nodes that the first half runs.
  const torch::autograd::edge_list& beside() const { return beside_; }
  // Whether a node of the graph waits for the second half.
  bool waits(const Node* node) const;

 private:
  void visit(const torch::autograd::Edge& root);
  void find_way(const torch::autograd::edge_list& inputs);
  void join_components();
  void sort_edges();
  size_t place(const torch::autograd::Edge& edge) const { return places_.at(edge.function.get()); }

  // A node comes after all nodes to which it leads.
  torch::autograd::edge_list nodes_;
  std::unordered_map<const Node*, size_t> places_;
  std::vector<bool> leads_to_input_;
  // Nodes that lead to parameters only are divided into components that have no edge in common.
  // All of a component runs in one half, so no operation and no hook there runs twice. By place:
  // the place of the component's last node.
  std::vector<size_t> component_;
  std::vector<bool> waits_;  // By the place of a component's last node.
  std::vector<OnTheWay> on_the_way_;
  torch::autograd::edge_list beside_;
};

}  // namespace trireme::pipeline
