#include <ATen/core/Tensor.h>
#include <ATen/ops/zeros.h>
#include <torch/nn/module.h>

#include <trireme/parallel/mesh/model_forms.h>
#include <trireme/parallel/nn/tensor_parallel_layer.h>
#include <trireme/tensor/hollow.h>
#include <algorithm>

namespace trireme {

std::vector<plan::TensorSpec> forms_of(const MeshRank& mesh, const Model& model,
                                       const ModuleState& whole) {
  std::vector<plan::TensorSpec> specs = specs_of(whole.parameters);
  const auto& ranks = mesh.along(plan::kTensorAxis);
  if (ranks->size() == 1) return specs;
  nn::require_layers_to_divide(*model.module, model.module->name());
  const auto parts = nn::parts_of(*model.module, ranks->rank(), ranks->size());
  for (size_t i = 0; i < specs.size(); ++i) specs[i].shape = parts[i].parts.front().shape;
  return specs;
}

Json to_json(const std::vector<plan::TensorSpec>& specs) {
  Json json = Json::object();
  for (const plan::TensorSpec& spec : specs)
    json[spec.name] = spec.describe() + (spec.trainable ? "" : " frozen");
  return json;
}

std::vector<plan::TensorSpec> as_updated(std::vector<plan::TensorSpec> specs) {
  for (plan::TensorSpec& spec : specs)
    if (plan::bytes_of(spec.dtype) == 2) spec.dtype = plan::DType::float32;
  return specs;
}

bool are_hollow_on_all(const std::vector<NamedTensor>& tensors, Group& group) {
  const bool mine_are = std::ranges::all_of(tensors, [](const NamedTensor& named) {
    return is_hollow(named.tensor) || named.tensor.numel() == 0;
  });
  const at::Tensor hollow = at::zeros({1}, at::kLong);
  hollow[0] = mine_are ? 1 : 0;
  group.all_reduce(hollow);
  return hollow.item<int64_t>() == group.size();
}

size_t first_trained(const std::vector<BlockTensors>& tensors,
                     const std::vector<plan::TensorSpec>& forms) {
  for (size_t block = 0; block < tensors.size(); ++block)
    for (const plan::TensorSpec& spec : forms)
      if (spec.trainable && tensors[block].parameters.contains(spec.name)) return block;
  return tensors.size();
}

std::vector<std::vector<int>> numbers_by_block(const std::vector<BlockTensors>& tensors,
                                               const std::vector<plan::TensorSpec>& forms) {
  std::vector<std::vector<int>> all;
  for (const BlockTensors& block : tensors) {
    std::vector<int>& own = all.emplace_back();
    for (size_t i = 0; i < forms.size(); ++i)
      if (block.parameters.contains(forms[i].name)) own.push_back(static_cast<int>(i));
  }
  return all;
}

std::vector<plan::DType> types_of(const std::vector<plan::TensorSpec>& forms) {
  std::vector<plan::DType> types;
  for (const plan::TensorSpec& spec : forms) types.push_back(spec.dtype);
  return types;
}

}  // namespace trireme
