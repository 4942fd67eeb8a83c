#include <trireme/models/build.h>
#include <trireme/models/cnn.h>
#include <trireme/models/gpt.h>
#include <trireme/models/mlp.h>
#include <trireme/models/resnet.h>

namespace trireme::models {

ModelFactory make_factory(const ModelOptions& options, const InputSpec& input) {
  const ModelOptions resolved = resolve(options);
  parameter_shapes(resolved, input);  // Throws if the input does not fit.
  switch (family_of(resolved)) {
    case Family::cnn: return [resolved, input] { return make_cnn(resolved, input); };
    case Family::gpt: return [resolved] { return make_gpt(resolved); };
    case Family::resnet: return [resolved, input] { return make_resnet(resolved, input); };
    case Family::mlp: break;
  }
  return [resolved, input] { return make_mlp(resolved, input); };
}

}  // namespace trireme::models
