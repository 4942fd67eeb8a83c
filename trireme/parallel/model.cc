#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <fmt/format.h>

#include <trireme/base/error.h>
#include <trireme/parallel/model.h>
#include <trireme/parallel/module_state.h>
#include <algorithm>
#include <set>

namespace trireme {
namespace {

[[noreturn]] void refuse_model(const std::string& what, const std::string& remedy) {
  throw Error(ErrorCode::invalid_argument, "train", what, remedy);
}

void check_names(const std::vector<Block>& blocks) {
  std::set<std::string> names;
  for (const Block& block : blocks) {
    if (std::ranges::count(block.modules, nullptr) > 0)
      refuse_model(fmt::format("a module of the block '{}' is null", block.name),
                   "Block::modules without it");
    if (!block.forward)
      refuse_model(fmt::format("the block '{}' of the model has no forward", block.name),
                   "a function from tensors to tensors");
    if (!names.insert(block.name).second)
      refuse_model(fmt::format("two blocks of the model are named '{}'", block.name),
                   "a name of its own for each block");
  }
}

void check_tensors(const Model& model) {
  std::set<const void*> known;
  for (const Block& block : model.blocks)
    for (const auto& module : block.modules) {
      const ModuleState state = state_of(*module);
      for (const auto* const tensors : {&state.parameters, &state.buffers})
        for (const auto& [name, tensor] : *tensors) known.insert(tensor.unsafeGetTensorImpl());
    }
  const ModuleState whole = state_of(*model.module);
  for (const auto* const tensors : {&whole.parameters, &whole.buffers})
    for (const auto& [name, tensor] : *tensors)
      if (!known.contains(tensor.unsafeGetTensorImpl()))
        refuse_model(fmt::format("the tensor '{}' of the model is in none of its blocks", name),
                     "a block whose modules have it");
}

}  // namespace

const at::Tensor& Forward::only_one_of(const Tensors& inputs) {
  if (inputs.size() != 1)
    refuse_model(fmt::format("the model's forward takes one tensor, and gets {}", inputs.size()),
                 "a forward that takes `const Tensors&`, or one name in Model::inputs");
  return inputs[0];
}

std::vector<Block> blocks_of(const Model& model) {
  if (!model.blocks.empty()) return model.blocks;
  return {{"model", {model.module}, [forward = model.forward](const Tensors& inputs) {
             return Tensors{forward(inputs)};
           }}};
}

at::Tensor output_of(const Model& model, const Batch& batch) {
  Tensors inputs;
  for (const std::string& name : model.inputs) inputs.push_back(batch.tensor(name));
  return model.forward(inputs);
}

at::Tensor output_of(const std::vector<Block>& blocks, Tensors inputs) {
  for (const Block& block : blocks) inputs = block.forward(inputs);
  return only_output(blocks, inputs);
}

const at::Tensor& only_output(const std::vector<Block>& blocks, const Tensors& outputs) {
  if (outputs.size() != 1)
    refuse_model(fmt::format("the last block '{}' gives {} tensors",
                             blocks.empty() ? "" : blocks.back().name, outputs.size()),
                 "one tensor, the model's output");
  return outputs[0];
}

void check_outputs(const Block& block, const Tensors& outputs) {
  const bool has_undefined =
      std::ranges::any_of(outputs, [](const at::Tensor& tensor) { return !tensor.defined(); });
  if (outputs.empty() || has_undefined)
    refuse_model(fmt::format("the block '{}' gives {}", block.name,
                             outputs.empty() ? "no tensor" : "a tensor that is undefined"),
                 "a block that gives at least one tensor, and only defined ones");
}

void check(const Model& model) {
  if (!model.module || !model.forward)
    refuse_model("the model factory gave no module or no forward function", "set both");
  const std::set<std::string> inputs(model.inputs.begin(), model.inputs.end());
  if (inputs.empty() || inputs.size() != model.inputs.size())
    refuse_model(fmt::format("the model takes {} inputs, {} of them different",
                             model.inputs.size(), inputs.size()),
                 "Model::inputs with at least one name, and each name once");
  if (model.blocks.empty()) return;
  check_names(model.blocks);
  check_tensors(model);
}

}  // namespace trireme
