#include <torch/nn/module.h>
#include <torch/optim/optimizer.h>

#include <trireme/parallel/updated_tensors.h>

namespace trireme {

std::vector<at::Tensor> tensors_of(const std::vector<NamedTensor>& named) {
  std::vector<at::Tensor> tensors;
  for (const auto& [name, tensor] : named) tensors.push_back(tensor);
  return tensors;
}

UpdatedTensors::UpdatedTensors(const torch::nn::Module& module, const OptimizerFactory& factory)
    : state(state_of(module)),
      masters(tensors_of(state.parameters)),
      parameters(state.parameters) {
  for (size_t i = 0; i < parameters.size(); ++i) parameters[i].tensor = masters.masters()[i];
  optimizer = factory(parameters);
}

UpdatedTensors::UpdatedTensors(const torch::nn::Module& module,
                               std::shared_ptr<torch::optim::Optimizer> made)
    : state(state_of(module)),
      masters({}),
      parameters(state.parameters),
      optimizer(std::move(made)) {}

std::vector<NamedTensor> UpdatedTensors::kept_in_16_bits() const {
  std::vector<NamedTensor> kept;
  for (size_t i = 0; i < parameters.size(); ++i)
    if (!parameters[i].tensor.is_same(state.parameters[i].tensor))
      kept.push_back(state.parameters[i]);
  return kept;
}

std::vector<NamedTensor> UpdatedTensors::masters_by_parameter() const {
  std::vector<NamedTensor> own;
  for (size_t i = 0; i < parameters.size(); ++i)
    if (const auto& [name, tensor] = parameters[i]; !tensor.is_same(state.parameters[i].tensor))
      own.push_back({name, tensor.detach()});
  return own;
}

}  // namespace trireme
