// The parameters of an optimizer, as an engine looks at them.
#pragma once
#include <torch/optim/optimizer.h>
#include <trireme/base/error.h>
#include <trireme/parallel/module_state.h>
#include <vector>

namespace trireme {

// The optimizer has a parameter that is not of the module, at this place in its groups.
Error foreign_parameter(int rank, size_t group, size_t place, const at::Tensor& tensor);

// Throws that error unless all parameters of the optimizer are among `parameters`.
void require_parameters_of(const std::vector<NamedTensor>& parameters,
                           const torch::optim::Optimizer& optimizer, int rank);

}  // namespace trireme
