#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <torch/nn/module.h>

#include <fmt/format.h>
#include <trireme/base/error.h>
#include <trireme/parallel/module_state.h>
#include <trireme/parallel/nn/tensor_parallel_layer.h>
#include <map>
#include <set>

namespace trireme::nn {
namespace {

struct NamedLayer {
  std::string name;
  torch::nn::Module* module = nullptr;
  TensorParallelLayer* layer = nullptr;
};

std::vector<NamedLayer> layers_of(torch::nn::Module& module) {
  std::vector<NamedLayer> layers;
  std::set<const void*> known;
  const auto add = [&](const std::string& name, torch::nn::Module& each) {
    if (auto* const layer = dynamic_cast<TensorParallelLayer*>(&each))
      if (known.insert(layer).second) layers.push_back({name, &each, layer});
  };
  add("", module);
  for (const auto& item : module.named_modules("", /*include_self=*/false))
    add(item.key(), *item.value());
  return layers;
}

void require_same_parts(const ParameterParts& first, const ParameterParts& second,
                        const std::string& layer) {
  const auto same = [](const plan::TensorSlice& a, const plan::TensorSlice& b) {
    return a.shape == b.shape && a.from == b.from && a.sizes == b.sizes;
  };
  if (first.sums_gradients == second.sums_gradients &&
      std::ranges::equal(first.parts, second.parts, same))
    return;
  throw Error(ErrorCode::invalid_argument, "parallel",
              fmt::format("the layer '{}' divides its tensor '{}' in another way than the layer "
                          "with which it is tied",
                          layer, second.name),
              "two layers that divide the same dimension");
}

// The parts of each tensor that a layer names, by tensor.
std::map<const void*, ParameterParts> parts_in(const std::vector<NamedLayer>& layers, int rank,
                                               int ranks) {
  std::map<const void*, ParameterParts> parts;
  for (const auto& [name, module, layer] : layers) {
    const auto own = module->named_parameters(/*recurse=*/false);
    for (const ParameterParts& each : layer->parts(name, rank, ranks)) {
      const auto [known, is_new] = parts.emplace(own[each.name].unsafeGetTensorImpl(), each);
      if (!is_new) require_same_parts(known->second, each, name);
    }
  }
  return parts;
}

void take_part(const at::Tensor& parameter, const ParameterParts& parts, const PartMaker& make) {
  const at::NoGradGuard no_grad;
  if (parameter.sizes() == parts.sizes()) return;
  parameter.mutable_grad().reset();
  if (parameter.sizes() == parts.parts.front().shape)
    parameter.set_data(make(parameter.detach(), parts));
  else
    parameter.set_data(at::empty(parts.sizes(), parameter.options().requires_grad(false)));
}

}  // namespace

void TensorParallelLayer::join(std::shared_ptr<Group> ranks) {
  ranks_ = ranks && ranks->size() > 1 ? std::move(ranks) : nullptr;
}

std::vector<ParameterParts> parts_of(torch::nn::Module& module, int rank, int ranks) {
  const auto parts = parts_in(layers_of(module), rank, ranks);
  std::vector<ParameterParts> result;
  for (const auto& [name, tensor] : state_of(module).parameters) {
    const auto known = parts.find(tensor.unsafeGetTensorImpl());
    if (known == parts.end()) {
      result.push_back({name, {plan::TensorSlice::whole(name, tensor.sizes().vec())}});
      continue;
    }
    result.push_back(known->second);
    result.back().name = name;
    for (plan::TensorSlice& box : result.back().parts) box.tensor = name;
  }
  return result;
}

std::vector<ParameterParts> divide_layers(torch::nn::Module& module,
                                          const std::shared_ptr<Group>& ranks,
                                          const PartMaker& make) {
  const std::vector<ParameterParts> parts = parts_of(module, ranks->rank(), ranks->size());
  const ModuleState state = state_of(module);
  for (size_t i = 0; i < parts.size(); ++i) take_part(state.parameters[i].tensor, parts[i], make);
  for (const NamedLayer& each : layers_of(module)) each.layer->join(ranks);
  return parts;
}

void require_layers_to_divide(torch::nn::Module& module, const std::string& model) {
  if (!layers_of(module).empty()) return;
  throw Error(ErrorCode::invalid_argument, "parallel",
              fmt::format("no layer of the model '{}' can be divided along a tensor axis", model),
              "mesh.tensor=1, or a model made of the layers of trireme::nn, such as gpt");
}

}  // namespace trireme::nn
