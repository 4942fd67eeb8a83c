#include <torch/nn/module.h>
#include <torch/nn/modules/batchnorm.h>

#include <fmt/ranges.h>
#include <trireme/base/hash.h>
#include <trireme/checkpoint/digest.h>
#include <trireme/comm/dtype.h>
#include <trireme/comm/group.h>
#include <trireme/parallel/module_state.h>
#include <trireme/tensor/on_host.h>
#include <algorithm>
#include <cstring>

namespace trireme {

ModuleState state_of(const torch::nn::Module& module) {
  ModuleState state;
  std::map<const void*, std::string> first_name;
  const auto add = [&](std::vector<NamedTensor>& tensors, const std::string& name,
                       const at::Tensor& tensor) {
    if (!tensor.defined()) return;
    const auto [known, is_new] = first_name.emplace(tensor.unsafeGetTensorImpl(), name);
    if (is_new)
      tensors.push_back({name, tensor});
    else
      state.aliases.emplace(name, known->second);
  };
  for (const auto& item : module.named_parameters())
    add(state.parameters, item.key(), item.value());
  for (const auto& item : module.named_buffers()) add(state.buffers, item.key(), item.value());
  return state;
}

namespace {

// Module::to() also converts masks and counters, which are no numbers to compute with.
void convert_floating_point(torch::nn::Module& module, at::ScalarType dtype) {
  std::vector<std::pair<at::Tensor, at::Tensor>> kept;
  for (const auto& tensors : {module.parameters(), module.buffers()})
    for (const at::Tensor& tensor : tensors)
      if (tensor.defined() && !tensor.is_floating_point() && !tensor.is_complex())
        kept.emplace_back(tensor, tensor.detach());
  module.to(dtype);
  for (const auto& [tensor, before] : kept) tensor.set_data(before);
}

}  // namespace

void prepare_for_training(torch::nn::Module& module, at::ScalarType dtype) {
  module.train();
  convert_floating_point(module, dtype);
  if (dtype != at::kHalf && dtype != at::kBFloat16) return;
  for (const auto& part : module.modules()) {
    if (part->as<torch::nn::BatchNorm1d>() || part->as<torch::nn::BatchNorm2d>() ||
        part->as<torch::nn::BatchNorm3d>())
      convert_floating_point(*part, at::kFloat);
  }
}

std::vector<at::Tensor> copies_of(const std::vector<NamedTensor>& tensors) {
  std::vector<at::Tensor> copies;
  for (const auto& [name, tensor] : tensors) copies.push_back(tensor.clone());
  return copies;
}

at::Tensor as_bytes(const at::Tensor& contiguous) { return contiguous.view({-1}).view(at::kByte); }

void broadcast_tensors(Group& group, const std::vector<NamedTensor>& tensors, int root) {
  if (group.size() == 1) return;
  const at::NoGradGuard no_grad;
  for (const auto& [name, tensor] : tensors) {
    const at::Tensor whole = tensor.detach().contiguous();
    group.broadcast(as_bytes(whole), root);
    if (whole.data_ptr() != tensor.data_ptr()) tensor.detach().copy_(whole);
  }
}

std::vector<plan::TensorSpec> specs_of(const std::vector<NamedTensor>& tensors) {
  std::vector<plan::TensorSpec> specs;
  for (const auto& [name, tensor] : tensors)
    specs.push_back(
        {name, tensor.sizes().vec(), to_plan(tensor.scalar_type()), tensor.requires_grad()});
  return specs;
}

std::map<std::string, std::string> facts_of(const ModuleState& state, bool with_frozen) {
  std::map<std::string, std::string> facts;
  for (const auto& spec : specs_of(state.parameters))
    facts["parameter " + spec.name] =
        spec.describe() + (spec.trainable || !with_frozen ? "" : ", frozen");
  for (const auto& [name, tensor] : state.buffers)
    facts["buffer " + name] = fmt::format("{}[{}]", c10::toString(tensor.scalar_type()),
                                          fmt::join(tensor.sizes(), ", "));
  return facts;
}

void TensorHash::add(const NamedTensor& named) {
  const auto& [name, tensor] = named;
  plan::TensorSpec spec{name, tensor.sizes().vec(), to_plan(tensor.scalar_type()), true};
  sha_.update(name + " " + spec.describe() + "\n");
  const at::Tensor bytes = on_host(tensor);
  sha_.update(std::span(static_cast<const std::byte*>(bytes.const_data_ptr()), bytes.nbytes()));
}

std::string sha256_of(const std::vector<NamedTensor>& tensors) {
  TensorHash hash;
  for (const NamedTensor& named : tensors) hash.add(named);
  return hash.hex();
}

uint64_t digest_of(const std::vector<NamedTensor>& tensors) {
  checkpoint::Digest digest;
  for (const auto& [name, tensor] : tensors) {
    const at::Tensor flat = on_host(tensor);
    digest.update({static_cast<const std::byte*>(flat.const_data_ptr()), flat.nbytes()});
  }
  uint64_t value = 0;
  for (const checkpoint::PieceDigest& piece : digest.pieces()) {
    uint64_t word = 0;
    std::memcpy(&word, piece.data(), sizeof word);
    value = mix64(value, word);
  }
  return std::max<uint64_t>(1, value);
}

}  // namespace trireme
