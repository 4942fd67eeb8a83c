#include <torch/csrc/jit/api/module.h>
#include <torch/nn/module.h>
#include <trireme/parallel/script_module.h>

namespace trireme {

std::shared_ptr<torch::nn::Module> module_of_script(const torch::jit::Module& script) {
  struct Parts : torch::nn::Module {};
  auto parts = std::make_shared<Parts>();
  for (const auto& [name, tensor] : script.named_parameters(/*recurse=*/false))
    parts->register_parameter(name, tensor, tensor.requires_grad());
  for (const auto& [name, tensor] : script.named_buffers(/*recurse=*/false))
    parts->register_buffer(name, tensor);
  for (const auto& [name, child] : script.named_children())
    parts->register_module(name, module_of_script(child));
  return parts;
}

}  // namespace trireme
