#include <fmt/format.h>
#include <torch/nn/module.h>
#include <trireme/base/error.h>
#include <trireme/config/registry.h>
#include <trireme/models/amoebanet.h>
#include <trireme/models/build.h>
#include <trireme/models/cnn.h>
#include <trireme/models/dlrm.h>
#include <trireme/models/family.h>
#include <trireme/models/gpt.h>
#include <trireme/models/mlp.h>
#include <trireme/models/resnet.h>
#include <trireme/parallel/module_state.h>
#include <set>

namespace trireme::models {
namespace {

using MakeModel = Model (*)(const ModelOptions&, const InputSpec&);
using Makers = config::Registry<ModelMaker>;

// Makers of the models that come with Trireme, by name.
Makers::Things shipped_makers() {
  const std::vector<std::pair<Family, MakeModel>> rows = {
      {mlp_family(), make_mlp},
      {cnn_family(), make_cnn},
      {gpt_family(), make_gpt},
      {resnet_family(), make_resnet},
      {amoebanet_family(), make_amoebanet},
      {dlrm_family(), make_dlrm},
  };
  Makers::Things makers;
  for (const auto& [family, make] : rows) {
    const ModelMaker maker = [make = make](const ModelOptions& options, const InputSpec& input) {
      parameter_shapes(options, input);  // Throws if the input does not fit.
      return [make, options, input] { return make(options, input); };
    };
    for (const std::string_view name : family.names) makers.emplace(name, maker);
    for (const std::string_view name : family.presets) makers.emplace(name, maker);
  }
  return makers;
}

std::vector<BlockSize> sizes_of_blocks(const Model& model) {
  const ModuleState all = state_of(*model.module);
  std::vector<BlockSize> sizes;
  for (const Block& block : blocks_of(model)) {
    BlockSize size{.name = block.name};
    std::set<const c10::TensorImpl*> own;
    for (const auto& part : block.modules)
      for (const at::Tensor& tensor : part->parameters()) own.insert(tensor.unsafeGetTensorImpl());
    for (const auto& [name, tensor] : all.parameters) {
      if (!own.contains(tensor.unsafeGetTensorImpl())) continue;
      size.elements += tensor.numel();
      size.parameters.push_back(name);
    }
    sizes.push_back(std::move(size));
  }
  return sizes;
}

Makers& makers() {
  static Makers known("model", shipped_makers());
  return known;
}

}  // namespace

void register_model(const std::string& name, ModelMaker maker, const ModelDefaults& defaults) {
  makers().add(name, maker);
  OwnShapes shapes{.input = defaults.input, .batch = defaults.batch};
  shapes.parameters = [maker](const ModelOptions& options, const InputSpec& input) {
    return specs_of(state_of(*maker(options, input)().module).parameters);
  };
  shapes.blocks = [maker](const ModelOptions& options, const InputSpec& input) {
    return sizes_of_blocks(maker(options, input)());
  };
  add_model(name, std::move(shapes));
}

void register_model(const std::string& name, ModelFactory factory, const ModelDefaults& defaults) {
  if (!factory) return register_model(name, ModelMaker(), defaults);  // Refuses it.
  register_model(
      name,
      [factory = std::move(factory)](const ModelOptions&, const InputSpec&) { return factory; },
      defaults);
}

ModelFactory make_factory(const ModelOptions& options, const InputSpec& input) {
  const ModelOptions resolved = resolve(options);  // Throws if there is no such model.
  return makers().find(resolved.name)(resolved, input);
}

ModelFactory make_factory(const ModelOptions& options, const InputSpec& input,
                          const std::shared_ptr<RowSource>& tables) {
  const ModelOptions resolved = resolve(options);
  const Family* family = family_of(resolved);
  if (!family || !family->tables)
    throw Error(
        ErrorCode::invalid_argument, "models",
        fmt::format("model '{}' has no embedding tables that servers could have", resolved.name),
        "model.name=dlrm, or ps.tables=false");
  parameter_shapes(resolved, input);  // Throws if the input does not fit.
  return [resolved, input, tables] { return make_dlrm(resolved, input, tables); };
}

}  // namespace trireme::models
