#include <fmt/format.h>

#include <trireme/models/checks.h>
#include <trireme/models/gpt.h>
#include <algorithm>
#include <array>

namespace trireme::models {
namespace {

struct GptSizes {
  std::string_view name;
  int64_t layers, width, heads, vocabulary, context;
  int tied;
};

// The sizes of GPT-2 are from Radford et al. 2019, table 2. The paper gives no heads; they
// have 64 features each, as in the weights that OpenAI published.
constexpr std::array kGptSizes = {
    GptSizes{"gpt", 6, 256, 8, 8192, 128, 0},
    GptSizes{"gptdeep", 16, 256, 8, 512, 128, 0},
    GptSizes{"gpt2", 12, 768, 12, 50257, 1024, 1},
    GptSizes{"gpt2-medium", 24, 1024, 16, 50257, 1024, 1},
    GptSizes{"gpt2-large", 36, 1280, 20, 50257, 1024, 1},
    GptSizes{"gpt2-xl", 48, 1600, 25, 50257, 1024, 1},
};

void resolve_gpt(ModelOptions& options) {
  const GptSizes& sizes = *std::ranges::find(kGptSizes, options.name, &GptSizes::name);
  const bool is_preset = options.name != "gpt";
  const auto fill = [&](std::string_view key, auto& value, auto usual) {
    if (value < 0) value = usual;
    if (is_preset && value != usual)
      refuse(fmt::format("{} is {}, but the preset {} has {}", key, value, options.name, usual),
             "model.name=gpt");
  };
  fill("model.layers", options.layers, sizes.layers);
  fill("model.width", options.width, sizes.width);
  fill("model.heads", options.heads, sizes.heads);
  fill("model.vocabulary", options.vocabulary, sizes.vocabulary);
  fill("model.context", options.context, sizes.context);
  fill("model.tied", options.tied, sizes.tied);
  require_positive("model.layers", options.layers);
  require_positive("model.width", options.width);
  require_positive("model.heads", options.heads);
  require_positive("model.vocabulary", options.vocabulary);
  require_positive("model.context", options.context);
  if (options.width % options.heads != 0) {
    refuse(
        fmt::format(
            "model.width is {} and model.heads is {}: the width must be a multiple of the heads",
            options.width, options.heads),
        fmt::format("model.width={}", (options.width / options.heads + 1) * options.heads));
  }
}

void check_tokens(const ModelOptions& options, const InputSpec& input) {
  if (input.shape.size() != 1 || input.categories > 0)
    refuse_input(options, input, "a row of tokens",
                 "data.name=text, or model.name=cnn for images");
  if (input.shape[0] < 1 || input.shape[0] > options.context)
    refuse_input(options, input, fmt::format("1 to {} tokens", options.context),
                 options.name == "gpt" ? fmt::format("model.context={}", input.shape[0])
                                       : fmt::format("data.block={}", options.context));
  if (input.classes > options.vocabulary)
    refuse(fmt::format("model.vocabulary is {}, but the data has {} different tokens",
                       options.vocabulary, input.classes),
           fmt::format("model.vocabulary={}", input.classes));
}

void add_gpt(ShapeList& list, const ModelOptions& options, const InputSpec& input) {
  check_tokens(options, input);
  const int64_t width = options.width;
  list.begin_block("embedding");
  list.add("token_embedding.weight", {options.vocabulary, width});
  list.add("position_embedding.weight", {options.context, width});
  for (int64_t layer = 0; layer < options.layers; ++layer) {
    const std::string block = fmt::format("blocks.{}.", layer);
    list.begin_block(fmt::format("block{}", layer));
    list.add_norm(block + "attention_norm", width);
    list.add_linear(block + "qkv", width, 3 * width);
    list.add_linear(block + "attention_out", width, width);
    list.add_norm(block + "mlp_norm", width);
    list.add_linear(block + "mlp_in", width, 4 * width);
    list.add_linear(block + "mlp_out", 4 * width, width);
  }
  list.begin_block("head");
  list.add_norm("final_norm", width);
  if (options.tied == 1)
    list.add_tied("token_embedding.weight");
  else
    list.add("head.weight", {options.vocabulary, width});
}

InputSpec input_of_gpt(const ModelOptions& options) {
  return {{options.context}, options.vocabulary};
}

}  // namespace

Family gpt_family() {
  return {.names = {"gpt"},
          .presets = {"gptdeep", "gpt2", "gpt2-medium", "gpt2-large", "gpt2-xl"},
          .keys = {"model.layers", "model.width", "model.heads", "model.vocabulary",
                   "model.context", "model.tied"},
          .takes_tokens = true,
          .divides = true,
          .resolve = resolve_gpt,
          .add_shapes = add_gpt,
          .default_input = input_of_gpt,
          .default_batch = [](const ModelOptions& options) -> int64_t {
            return options.name == "gpt" || options.name == "gptdeep" ? 8 : 1;
          }};
}

}  // namespace trireme::models
