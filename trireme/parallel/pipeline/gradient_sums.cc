#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/csrc/autograd/generated/Functions.h>

#include <trireme/parallel/pipeline/backward_graph.h>
#include <trireme/parallel/pipeline/gradient_sums.h>
#include <optional>
#include <unordered_set>
#include <utility>

namespace trireme::pipeline {
namespace {

using torch::autograd::AccumulateGrad;
using torch::autograd::Edge;
using torch::autograd::Node;
using torch::autograd::SavedVariable;
using torch::autograd::variable_list;

// A product of a matrix and a transposed leaf.
struct Product {
  SavedVariable* left = nullptr;     // The matrix.
  at::Layout layout = at::kStrided;  // That of the matrix.
  uint32_t edge = 0;                 // The one to the leaf.
  at::Tensor weight;
};

// The leaf to which this edge leads through one transposition.
at::Tensor transposed_leaf(const Edge& edge) {
  auto* const transposition = dynamic_cast<torch::autograd::generated::TBackward0*>(
      edge.is_valid() ? edge.function.get() : nullptr);
  if (!transposition || has_hooks(*transposition)) return {};
  const Edge& next = transposition->next_edge(0);
  auto* const end = dynamic_cast<AccumulateGrad*>(next.is_valid() ? next.function.get() : nullptr);
  const bool is_plain = end && !has_hooks(*end) && !end->tensor_post_acc_grad_hooks();
  return is_plain ? end->variable : at::Tensor();
}

// Hooks behind the product would miss the gradient.
std::optional<Product> product_of(Node& node) {
  if (!node.post_hooks().empty()) return std::nullopt;
  Product product;
  if (auto* const sum = dynamic_cast<torch::autograd::generated::AddmmBackward0*>(&node)) {
    if (!sum->alpha.equal(1)) return std::nullopt;
    product = {&sum->mat1_, sum->mat1_layout, 2, transposed_leaf(sum->next_edge(2))};
  } else if (auto* const plain = dynamic_cast<torch::autograd::generated::MmBackward0*>(&node)) {
    product = {&plain->self_, plain->self_layout, 1, transposed_leaf(plain->next_edge(1))};
  }
  if (!product.weight.defined() || product.weight.is_complex() || product.layout != at::kStrided)
    return std::nullopt;
  return product;
}

bool can_add_to(const at::Tensor& gradient, const at::Tensor& weight) {
  return gradient.defined() && gradient.is_contiguous() && !gradient.requires_grad() &&
         gradient.layout() == weight.layout() && gradient.scalar_type() == weight.scalar_type() &&
         gradient.device() == weight.device();
}

// The operation owns the hook.
class AddHook : public torch::autograd::FunctionPreHook {
 public:
  explicit AddHook(Product product) : product_(std::move(product)) {}
  variable_list operator()(const variable_list& gradients) override {
    if (gradients[0].defined()) {
      const at::NoGradGuard no_grad;
      const at::Tensor left = product_.left->unpack();
      // The operation unpacks it again, and a hook may run only once: it may read or compute.
      if (product_.left->has_hooks()) *product_.left = SavedVariable(left, /*is_output=*/false);
      product_.weight.mutable_grad().addmm_(gradients[0].t(), left);
    }
    return gradients;
  }

 private:
  Product product_;
};

}  // namespace

void add_within_products(const torch::autograd::edge_list& roots) {
  std::unordered_set<const Node*> seen;
  std::vector<Node*> open;
  const auto visit = [&](const Edge& edge) {
    if (edge.is_valid() && seen.insert(edge.function.get()).second)
      open.push_back(edge.function.get());
  };
  for (const Edge& root : roots) visit(root);
  while (!open.empty()) {
    Node& node = *open.back();
    open.pop_back();
    if (auto product = product_of(node);
        product && can_add_to(product->weight.grad(), product->weight)) {
      node.next_edges()[product->edge] = Edge();
      node.add_pre_hook(std::make_unique<AddHook>(std::move(*product)));
    }
    for (const Edge& edge : node.next_edges()) visit(edge);
  }
}

}  // namespace trireme::pipeline
