// The rules between the axes of a mesh: what cannot be divided in two ways at once.
#pragma once
#include <trireme/parallel/optimizer.h>

namespace trireme {

// Throws Error(unsupported) if the optimizer needs the norms of layers, which the tensor axis
// divides.
void check_divided_update(const torch::optim::Optimizer& optimizer);

}  // namespace trireme
