#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/graph_task.h>

#include <trireme/parallel/mesh/block_visits.h>
#include <functional>

namespace trireme {
namespace {

using torch::autograd::variable_list;

// A step of the graph behind all outputs of a block. It runs once the gradients of all of them are
// there. Autograd prefers steps that forward made later, and the accumulation of gradients to all
// others. So everything of the later blocks is done by then.
class BeforeBackward : public torch::autograd::Node {
 public:
  explicit BeforeBackward(std::function<void()> call) : call_(std::move(call)) {}
  variable_list apply(variable_list&& gradients) override {
    call_();
    return std::move(gradients);
  }

 private:
  const std::function<void()> call_;
};

Tensors behind(std::function<void()> call, Tensors outputs) {
  variable_list needed;
  for (const at::Tensor& output : outputs)
    if (output.defined() && output.requires_grad()) needed.push_back(output);
  if (needed.empty()) return outputs;
  const std::shared_ptr<torch::autograd::Node> node(new BeforeBackward(std::move(call)),
                                                    torch::autograd::deleteNode);
  node->set_next_edges(torch::autograd::collect_next_edges(needed));
  for (at::Tensor& output : outputs)
    if (output.defined() && output.requires_grad()) {
      output = output.detach();
      torch::autograd::set_history(output, node);
    }
  return outputs;
}

}  // namespace

std::vector<Block> visited(const std::vector<Block>& blocks,
                           const std::shared_ptr<BlockVisitor>& visitor) {
  std::vector<Block> all = blocks;
  for (size_t i = 0; i < blocks.size(); ++i)
    all[i].forward = [run = blocks[i].forward, weak = std::weak_ptr(visitor),
                      i](const Tensors& inputs) {
      if (const auto living = weak.lock()) living->before_forward(i);
      Tensors outputs = run(inputs);
      if (const auto living = weak.lock()) living->after_forward(i);
      if (!at::GradMode::is_enabled()) return outputs;
      return behind(
          [weak, i] {
            if (const auto living = weak.lock()) living->before_backward(i);
          },
          std::move(outputs));
    };
  return all;
}

bool is_in_backward() { return torch::autograd::get_current_graph_task_id() != -1; }

}  // namespace trireme
