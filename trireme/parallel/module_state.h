// A module's parameters and buffers as the engines see them: each tensor once, and a tied tensor
// by its first name.
#pragma once
#include <ATen/core/Tensor.h>
#include <trireme/base/hash.h>
#include <trireme/plan/tensor_spec.h>
#include <map>
#include <string>
#include <vector>

namespace torch::nn {
class Module;
}

namespace trireme {

class Group;

struct NamedTensor {
  std::string name;  // The name in PyTorch's state_dict.
  at::Tensor tensor;
};

struct ModuleState {
  // The parameters in the order of named_parameters(), frozen ones included.
  std::vector<NamedTensor> parameters;
  // The buffers in the order of named_buffers(), without undefined ones.
  std::vector<NamedTensor> buffers;
  // Maps the second and later names of a tied tensor to its first name.
  std::map<std::string, std::string> aliases;
};
ModuleState state_of(const torch::nn::Module& module);

// Gives the module this type and training mode. Batch norms keep float32, since 16 bits are too
// coarse for their statistics.
void prepare_for_training(torch::nn::Module& module, at::ScalarType dtype);

std::vector<at::Tensor> copies_of(const std::vector<NamedTensor>& tensors);
// Groups reduce few types, but carry the bytes of all.
at::Tensor as_bytes(const at::Tensor& contiguous);
// COLLECTIVE. Makes the tensors of every rank rank `root`'s. Their forms are the same on all
// ranks.
void broadcast_tensors(Group& group, const std::vector<NamedTensor>& tensors, int root = 0);

std::vector<plan::TensorSpec> specs_of(const std::vector<NamedTensor>& tensors);
// The facts that must be alike on all ranks, for World::agree: names, shapes, types, frozen or
// not.
std::map<std::string, std::string> facts_of(const ModuleState& state, bool with_frozen = true);
// SHA-256 over names in order, dtype, shape and bytes. Two hashes are equal exactly when the two
// models are bit-identical.
class TensorHash {
 public:
  void add(const NamedTensor& named);
  std::string hex() { return sha_.hex(); }

 private:
  Sha256 sha_;
};
std::string sha256_of(const std::vector<NamedTensor>& tensors);
// A fast digest of the bytes of the tensors, in order. It is not 0.
uint64_t digest_of(const std::vector<NamedTensor>& tensors);

}  // namespace trireme
