// The device of a model: the CPU, or one accelerator of LibTorch for each rank.
#pragma once
#include <trireme/parallel/module_state.h>

namespace trireme {

// The device of all parameters; the CPU if there are none. Throws Error(invalid_argument) naming
// two parameters if they are on several.
at::Device device_of(const std::vector<NamedTensor>& parameters);
// "cpu", "cuda", ...: what must be alike on all ranks.
std::string type_of(at::Device device);

}  // namespace trireme
