#include <torch/nn/module.h>

#include <trireme/parallel/mesh/parameter_keeper.h>

namespace trireme {

std::vector<at::Tensor> tensors_of(const std::vector<OwnTensor>& own) {
  std::vector<at::Tensor> tensors;
  for (const OwnTensor& each : own) tensors.push_back(each.tensor);
  return tensors;
}

std::vector<NamedTensor> named(const std::vector<OwnTensor>& own) {
  return named(own, tensors_of(own));
}

std::vector<NamedTensor> named(const std::vector<OwnTensor>& own,
                               const std::vector<at::Tensor>& tensors) {
  std::vector<NamedTensor> result;
  for (size_t i = 0; i < own.size(); ++i) result.push_back({own[i].name, tensors[i]});
  return result;
}

std::vector<std::vector<int>> parameters_by_block(const ParameterKeeperSetting& setting) {
  std::vector<std::vector<int>> all;
  for (const Block& block : setting.blocks) {
    std::set<const void*> used;
    for (const auto& module : block.modules)
      for (const at::Tensor& tensor : module->parameters())
        used.insert(tensor.unsafeGetTensorImpl());
    std::vector<int>& own = all.emplace_back();
    for (size_t i = 0; i < setting.parameters.size(); ++i)
      if (used.contains(setting.parameters[i].tensor.unsafeGetTensorImpl()))
        own.push_back(static_cast<int>(i));
  }
  return all;
}

}  // namespace trireme
