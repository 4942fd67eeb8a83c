// A torch::jit::script::Module for engines, which take a torch::nn::Module.
#pragma once
#include <memory>

namespace torch {
namespace jit {
struct Module;
}
namespace nn {
class Module;
}
}  // namespace torch

namespace trireme {

// Returns a module that has the script's parameters, buffers and submodules, by their names, and
// no forward(). The tensors are the script's own.
std::shared_ptr<torch::nn::Module> module_of_script(const torch::jit::Module& script);

}  // namespace trireme
