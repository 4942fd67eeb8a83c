// The tensors that an engine reduces and updates: the module's parameters, or the float32 masters
// of those that are kept in 16 bits.
#pragma once
#include <trireme/parallel/module_state.h>
#include <trireme/parallel/optimizer.h>
#include <trireme/tensor/master_weights.h>
#include <memory>
#include <vector>

namespace trireme {

std::vector<at::Tensor> tensors_of(const std::vector<NamedTensor>& named);

struct UpdatedTensors {
  ModuleState state;  // The module's.
  MasterWeights masters;
  std::vector<NamedTensor> parameters;
  std::shared_ptr<torch::optim::Optimizer> optimizer;

  UpdatedTensors(const torch::nn::Module& module, const OptimizerFactory& factory);
  // An optimizer made by the caller has the module's own parameters.
  UpdatedTensors(const torch::nn::Module& module, std::shared_ptr<torch::optim::Optimizer> made);

  // The parameters that have masters: each replica has its own copy of them.
  std::vector<NamedTensor> kept_in_16_bits() const;
  // The masters by the names of their parameters.
  std::vector<NamedTensor> masters_by_parameter() const;
};

}  // namespace trireme
