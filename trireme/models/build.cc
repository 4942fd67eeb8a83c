#include <fmt/format.h>
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

Makers& makers() {
  static Makers known("model", shipped_makers());
  return known;
}

}  // namespace

void register_model(const std::string& name, ModelMaker maker) {
  makers().add(name, std::move(maker));
  add_model(name);
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
