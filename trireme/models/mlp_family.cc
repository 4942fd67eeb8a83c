#include <fmt/format.h>
#include <fmt/ranges.h>

#include <trireme/models/checks.h>
#include <trireme/models/mlp.h>

namespace trireme::models {
namespace {

std::vector<int64_t> usual_hidden(std::string_view name) {
  if (name == "tiny") return std::vector<int64_t>(64, 64);
  if (name == "mlpbig") return {4096, 4096};
  if (name == "chain") return std::vector<int64_t>(8, 1024);
  return {1024, 1024, 1024};
}

void resolve_mlp(ModelOptions& options) {
  const std::vector<int64_t> usual = usual_hidden(options.name);
  if (options.hidden.empty()) options.hidden = usual;
  if (options.name != "mlp" && options.hidden != usual) {
    refuse(fmt::format("model.hidden is {}, but the preset {} has hidden layers of its own",
                       options.hidden, options.name),
           "model.name=mlp");
  }
  require_positive("model.hidden", options.hidden);
}

void add_mlp(ShapeList& list, const ModelOptions& options, const InputSpec& input) {
  check_features(options, input);
  int64_t width = 1;
  for (const int64_t size : input.shape) width *= size;
  // The position in the nn.Sequential: every hidden layer takes two, Linear and ReLU.
  int64_t slot = 0;
  for (const int64_t hidden : options.hidden) {
    list.begin_block(fmt::format("hidden{}", slot / 2));
    list.add_linear(std::to_string(slot), width, hidden);
    width = hidden;
    slot += 2;
  }
  if (options.dropout > 0) ++slot;
  list.begin_block("output");
  list.add_linear(std::to_string(slot), width, input.classes);
}

InputSpec input_of_mlp(const ModelOptions& options) {
  if (options.name == "tiny") return {{64}, 10};
  if (options.name == "mlpbig") return {{2048}, 10};
  if (options.name == "chain") return {{1024}, 10};
  return {{784}, 10};
}

int64_t batch_of_mlp(const ModelOptions& options) {
  if (options.name == "tiny") return 32;
  if (options.name == "mlpbig") return 64;
  return 128;
}

}  // namespace

Family mlp_family() {
  return {.names = {"mlp"},
          .presets = {"tiny", "mlpbig", "chain"},
          .keys = {"model.hidden", "model.dropout"},
          .preset_keys = {"model.dropout"},
          .divides = true,
          .resolve = resolve_mlp,
          .add_shapes = add_mlp,
          .default_input = input_of_mlp,
          .default_batch = batch_of_mlp};
}

}  // namespace trireme::models
