#include <trireme/models/build.h>
#include <trireme/models/cnn.h>
#include <trireme/models/gpt.h>
#include <trireme/models/mlp.h>

namespace trireme::models {

ModelFactory make_factory(const ModelOptions& options, const InputSpec& input) {
  const ModelOptions resolved = resolve(options);
  parameter_shapes(resolved, input);  // Refuses an input that does not fit.
  if (resolved.name == "gpt") return [resolved] { return make_gpt(resolved); };
  if (resolved.name == "cnn") return [resolved, input] { return make_cnn(resolved, input); };
  return [resolved, input] { return make_mlp(resolved, input); };
}

}  // namespace trireme::models
