#include <trireme/config/registry.h>
#include <trireme/models/build.h>
#include <trireme/models/cnn.h>
#include <trireme/models/gpt.h>
#include <trireme/models/mlp.h>
#include <trireme/models/resnet.h>

namespace trireme::models {
namespace {

config::Registry<ModelMaker>& own_models() {
  static config::Registry<ModelMaker> makers("model");
  return makers;
}

}  // namespace

void register_model(const std::string& name, ModelMaker maker) {
  own_models().add(name, std::move(maker), model_names());
  add_model(name);
}

ModelFactory make_factory(const ModelOptions& options, const InputSpec& input) {
  const ModelOptions resolved = resolve(options);
  if (family_of(resolved) == Family::registered)
    return own_models().find(options.name)(resolved, input);
  parameter_shapes(resolved, input);  // Throws if the input does not fit.
  switch (family_of(resolved)) {
    case Family::cnn: return [resolved, input] { return make_cnn(resolved, input); };
    case Family::gpt: return [resolved] { return make_gpt(resolved); };
    case Family::resnet: return [resolved, input] { return make_resnet(resolved, input); };
    case Family::mlp:
    case Family::registered: break;
  }
  return [resolved, input] { return make_mlp(resolved, input); };
}

}  // namespace trireme::models
