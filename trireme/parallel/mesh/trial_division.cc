#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <torch/nn/module.h>

#include <trireme/comm/lone_rank.h>
#include <trireme/parallel/mesh/trial_division.h>
#include <trireme/parallel/module_state.h>
#include <trireme/parallel/nn/tensor_parallel_layer.h>
#include <trireme/tensor/hollow.h>

namespace trireme {
namespace {

at::Tensor hollow_part(const at::Tensor& whole, const nn::ParameterParts& parts) {
  at::Tensor part = at::empty(parts.sizes(), whole.options().requires_grad(false));
  make_hollow(part);
  return part;
}

}  // namespace

TrialDivision::TrialDivision(torch::nn::Module& module, int ranks) {
  if (ranks == 1) return;
  for (const NamedTensor& named : state_of(module).parameters)
    former_.emplace_back(named.tensor, named.tensor.variable_data());
  for (const auto& each : module.modules())
    if (auto* const layer = dynamic_cast<nn::TensorParallelLayer*>(each.get()))
      layers_.emplace_back(layer, layer->ranks());
  try {
    nn::divide_layers(module, comm::make_lone_rank(ranks), hollow_part);
  } catch (...) {  // The destructor of an object that was not made does not run.
    restore();
    throw;
  }
}

TrialDivision::~TrialDivision() { restore(); }

void TrialDivision::restore() {
  const at::NoGradGuard no_grad;
  for (const auto& [parameter, data] : former_)
    if (parameter.sizes() != data.sizes()) parameter.set_data(data);
  for (const auto& [layer, ranks] : layers_) layer->join(ranks);
}

}  // namespace trireme
