#include <fmt/format.h>

#include <trireme/models/checks.h>
#include <trireme/models/gpt.h>

namespace trireme::models {
namespace {

void resolve_gpt(ModelOptions& options) {
  const auto fill = [](std::string_view key, int64_t& value, int64_t usual) {
    if (value < 0) value = usual;
    require_positive(key, value);
  };
  fill("model.layers", options.layers, 6);
  fill("model.width", options.width, 256);
  fill("model.heads", options.heads, 8);
  fill("model.vocabulary", options.vocabulary, 8192);
  fill("model.context", options.context, 128);
  if (options.width % options.heads != 0) {
    refuse(
        fmt::format(
            "model.width is {} and model.heads is {}: the width must be a multiple of the heads",
            options.width, options.heads),
        fmt::format("model.width={}", (options.width / options.heads + 1) * options.heads));
  }
}

void check_tokens(const ModelOptions& options, const InputSpec& input) {
  if (input.shape.size() != 1)
    refuse_input(options, input, "a row of tokens",
                 "data.name=text, or model.name=cnn for images");
  if (input.shape[0] < 1 || input.shape[0] > options.context)
    refuse_input(options, input, fmt::format("1 to {} tokens", options.context),
                 fmt::format("model.context={}", input.shape[0]));
  if (input.classes > options.vocabulary)
    refuse(fmt::format("model.vocabulary is {}, but the data has {} different tokens",
                       options.vocabulary, input.classes),
           fmt::format("model.vocabulary={}", input.classes));
}

void add_gpt(ShapeList& list, const ModelOptions& options, const InputSpec& input) {
  check_tokens(options, input);
  const int64_t width = options.width;
  list.add("token_embedding.weight", {options.vocabulary, width});
  list.add("position_embedding.weight", {options.context, width});
  for (int64_t layer = 0; layer < options.layers; ++layer) {
    const std::string block = fmt::format("blocks.{}.", layer);
    list.add_norm(block + "attention_norm", width);
    list.add_linear(block + "qkv", width, 3 * width);
    list.add_linear(block + "attention_out", width, width);
    list.add_norm(block + "mlp_norm", width);
    list.add_linear(block + "mlp_in", width, 4 * width);
    list.add_linear(block + "mlp_out", 4 * width, width);
  }
  list.add_norm("final_norm", width);
  list.add("head.weight", {options.vocabulary, width});
}

InputSpec input_of_gpt(const ModelOptions& options) {
  return {{options.context}, options.vocabulary};
}

}  // namespace

Family gpt_family() {
  return {
      .names = {"gpt"},
      .keys = {"model.layers", "model.width", "model.heads", "model.vocabulary", "model.context"},
      .takes_tokens = true,
      .resolve = resolve_gpt,
      .add_shapes = add_gpt,
      .default_input = input_of_gpt,
      .default_batch = [](const ModelOptions&) -> int64_t { return 8; }};
}

}  // namespace trireme::models
