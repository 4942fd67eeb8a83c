#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/core/ivalue.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/autograd/graph_task.h>

#include <trireme/parallel/mesh/block_visits.h>
#include <functional>

namespace trireme {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct Call : torch::CustomClassHolder {
  explicit Call(std::function<void()> function) : run(std::move(function)) {}
  const std::function<void()> run;
};

// A step of the graph behind all outputs of a block. It runs once the gradients of all of them are
// there. Autograd prefers steps that forward made later, and the accumulation of gradients to all
// others. So everything of the later blocks is done by then.
struct BeforeBackward : torch::autograd::Function<BeforeBackward> {
  static variable_list forward(AutogradContext* context, at::TensorList outputs,
                               const c10::intrusive_ptr<Call>& call) {
    context->saved_data["call"] = c10::IValue::make_capsule(call);
    context->set_materialize_grads(false);  // An output that is not used gives no gradient.
    variable_list same;
    for (const at::Tensor& output : outputs) same.push_back(output.detach());
    return same;
  }
  static variable_list backward(AutogradContext* context, variable_list gradients) {
    static_cast<const Call&>(*context->saved_data["call"].toCapsule()).run();
    gradients.emplace_back();  // For the call.
    return gradients;
  }
};

Tensors behind(std::function<void()> call, Tensors outputs) {
  variable_list needed;
  for (const at::Tensor& output : outputs)
    if (output.defined() && output.requires_grad()) needed.push_back(output);
  if (needed.empty()) return outputs;
  const variable_list same =
      BeforeBackward::apply(at::TensorList(needed), c10::make_intrusive<Call>(std::move(call)));
  auto next = same.begin();
  for (at::Tensor& output : outputs)
    if (output.defined() && output.requires_grad()) output = *next++;
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
