#include <fmt/format.h>
#include <fmt/ranges.h>

#include <trireme/base/error.h>
#include <trireme/base/units.h>
#include <trireme/models/shapes.h>
#include <algorithm>
#include <array>

namespace trireme::models {
namespace {

constexpr std::array<std::string_view, 5> kNames = {"mlp", "cnn", "gpt", "tiny", "mlpbig"};

[[noreturn]] void refuse(const std::string& what, const std::string& remedy) {
  throw Error(ErrorCode::invalid_argument, "models", what, remedy);
}

void refuse_option_of(std::string_view key, std::string_view owners, const ModelOptions& options) {
  refuse(fmt::format("{} is an option of {}, but model.name is {}", key, owners, options.name), fmt::format("leave {} out", key));
}

void require_positive(std::string_view key, const std::vector<int64_t>& values) {
  for (const int64_t value : values) {
    if (value < 1) refuse(fmt::format("{} is {}: every entry must be at least 1", key, values), fmt::format("correct {}", key));
  }
}

void require_positive(std::string_view key, int64_t value) {
  if (value < 1) refuse(fmt::format("{} is {}, but must be at least 1", key, value), fmt::format("correct {}", key));
}

bool is_gpt(const ModelOptions& options) { return options.name == "gpt"; }
bool is_cnn(const ModelOptions& options) { return options.name == "cnn"; }

std::vector<int64_t> default_hidden(std::string_view name) {
  if (name == "tiny") return std::vector<int64_t>(64, 64);
  if (name == "mlpbig") return {4096, 4096};
  return {1024, 1024, 1024};
}

void resolve_mlp(ModelOptions& options) {
  const std::vector<int64_t> usual = default_hidden(options.name);
  if (options.hidden.empty()) options.hidden = usual;
  if (options.name != "mlp" && options.hidden != usual) {
    refuse(fmt::format("model.hidden is {}, but the preset {} has hidden layers of its own", options.hidden, options.name),
           "model.name=mlp");
  }
  require_positive("model.hidden", options.hidden);
}

void resolve_cnn(ModelOptions& options) {
  if (options.channels.empty()) {
    options.channels = {32, 64, 64, 128, 128, 256};
    if (options.strides.empty()) options.strides = {1, 2, 1, 2, 1, 2};
  }
  if (options.strides.empty()) options.strides.assign(options.channels.size(), 1);
  require_positive("model.channels", options.channels);
  require_positive("model.strides", options.strides);
  if (options.strides.size() != options.channels.size()) {
    refuse(fmt::format("model.strides has {} entries and model.channels has {}: there must be one stride for each convolution",
                       options.strides.size(), options.channels.size()),
           "as many strides as channels");
  }
  options.batch_norm = options.batch_norm == 0 ? 0 : 1;
}

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
    refuse(fmt::format("model.width is {} and model.heads is {}: the width must be a multiple of the heads", options.width, options.heads),
           fmt::format("model.width={}", (options.width / options.heads + 1) * options.heads));
  }
}

void refuse_options_of_other_models(const ModelOptions& options) {
  const bool is_mlp = !is_gpt(options) && !is_cnn(options);
  if (!is_mlp && !options.hidden.empty()) refuse_option_of("model.hidden", "mlp", options);
  if (!is_cnn(options)) {
    if (!options.channels.empty()) refuse_option_of("model.channels", "cnn", options);
    if (!options.strides.empty()) refuse_option_of("model.strides", "cnn", options);
    if (options.batch_norm >= 0) refuse_option_of("model.batch_norm", "cnn", options);
  }
  if (!is_gpt(options)) {
    if (options.layers >= 0) refuse_option_of("model.layers", "gpt", options);
    if (options.width >= 0) refuse_option_of("model.width", "gpt", options);
    if (options.heads >= 0) refuse_option_of("model.heads", "gpt", options);
    if (options.vocabulary >= 0) refuse_option_of("model.vocabulary", "gpt", options);
    if (options.context >= 0) refuse_option_of("model.context", "gpt", options);
  } else if (options.dropout != 0) {
    refuse_option_of("model.dropout", "mlp and cnn", options);
  }
}

// Appends tensors under their state_dict names, as torch's modules register them: the weight, then the bias.
class ShapeList {
 public:
  explicit ShapeList(plan::DType dtype) : dtype_(dtype) {}

  void add(std::string name, std::vector<int64_t> shape) { specs_.push_back({std::move(name), std::move(shape), dtype_, true}); }
  void add_linear(const std::string& name, int64_t inputs, int64_t outputs) {
    add(name + ".weight", {outputs, inputs});
    add(name + ".bias", {outputs});
  }
  void add_norm(const std::string& name, int64_t features) {
    add(name + ".weight", {features});
    add(name + ".bias", {features});
  }
  std::vector<plan::TensorSpec> take() { return std::move(specs_); }

 private:
  plan::DType dtype_;
  std::vector<plan::TensorSpec> specs_;
};

void add_mlp(ShapeList& list, const ModelOptions& options, const InputSpec& input) {
  int64_t width = 1;
  for (const int64_t size : input.shape) width *= size;
  int64_t slot = 0;  // Position in the nn.Sequential: every hidden layer takes two, Linear and ReLU.
  for (const int64_t hidden : options.hidden) {
    list.add_linear(std::to_string(slot), width, hidden);
    width = hidden;
    slot += 2;
  }
  if (options.dropout > 0) ++slot;
  list.add_linear(std::to_string(slot), width, input.classes);
}

void add_cnn(ShapeList& list, const ModelOptions& options, const InputSpec& input) {
  int64_t channels = input.shape[0];
  int64_t slot = 0;
  for (const int64_t next : options.channels) {
    list.add(fmt::format("features.{}.weight", slot++), {next, channels, 3, 3});
    if (options.batch_norm == 1) {
      list.add_norm(fmt::format("features.{}", slot++), next);
    } else {
      list.add(fmt::format("features.{}.bias", slot - 1), {next});
    }
    ++slot;  // ReLU
    channels = next;
  }
  list.add_linear("classifier", channels, input.classes);
}

void add_gpt(ShapeList& list, const ModelOptions& options) {
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

void check_input(const ModelOptions& options, const InputSpec& input) {
  const auto refuse_input = [&](std::string_view rule, const std::string& remedy) {
    refuse(fmt::format("samples of shape {} do not fit model.name {}: it takes {}", input.shape, options.name, rule), remedy);
  };
  if (is_gpt(options)) {
    const int64_t context = options.context;
    if (input.shape.size() != 1) refuse_input("a row of tokens", "a source of text, or model.name=cnn for images");
    if (input.shape[0] < 1 || input.shape[0] > context) {
      refuse_input(fmt::format("1 to {} tokens", context), fmt::format("model.context={}", input.shape[0]));
    }
    return;
  }
  const bool positive = std::all_of(input.shape.begin(), input.shape.end(), [](int64_t size) { return size > 0; });
  if (is_cnn(options) && (input.shape.size() != 3 || !positive)) {
    refuse_input("[channels, height, width], each at least 1", "model.name=mlp, which flattens its input");
  }
  if (input.shape.empty() || !positive) refuse_input("at least one feature", "check the data set");
  if (input.classes < 1) refuse(fmt::format("data.classes is {}, but must be at least 1", input.classes), "data.classes=10");
}

}  // namespace

ModelOptions resolve(const ModelOptions& options) {
  if (std::find(kNames.begin(), kNames.end(), options.name) == kNames.end()) {
    const std::string near = nearest_word(options.name, kNames.data(), kNames.size());
    refuse(fmt::format("model.name is \"{}\": there is no such model", options.name),
           near.empty() ? fmt::format("one of {}", fmt::join(kNames, ", ")) : near);
  }
  refuse_options_of_other_models(options);
  if (!(options.dropout >= 0 && options.dropout < 1)) {
    refuse(fmt::format("model.dropout is {}, but must be at least 0 and below 1", options.dropout), "model.dropout=0.5");
  }
  ModelOptions resolved = options;
  if (is_gpt(options)) {
    resolve_gpt(resolved);
  } else if (is_cnn(options)) {
    resolve_cnn(resolved);
  } else {
    resolve_mlp(resolved);
  }
  return resolved;
}

InputSpec default_input(const ModelOptions& options) {
  const ModelOptions resolved = resolve(options);
  if (is_gpt(resolved)) return {{resolved.context}, resolved.vocabulary};
  if (is_cnn(resolved)) return {{3, 32, 32}, 10};
  if (resolved.name == "tiny") return {{64}, 10};
  if (resolved.name == "mlpbig") return {{2048}, 10};
  return {{784}, 10};
}

int64_t default_batch(const ModelOptions& options) {
  const ModelOptions resolved = resolve(options);
  if (is_gpt(resolved)) return 8;
  if (resolved.name == "mlp") return 128;
  if (resolved.name == "mlpbig") return 64;
  return 32;
}

std::vector<plan::TensorSpec> parameter_shapes(const ModelOptions& options, const InputSpec& input, plan::DType dtype) {
  const ModelOptions resolved = resolve(options);
  check_input(resolved, input);
  ShapeList list(dtype);
  if (is_gpt(resolved)) {
    add_gpt(list, resolved);
  } else if (is_cnn(resolved)) {
    add_cnn(list, resolved, input);
  } else {
    add_mlp(list, resolved, input);
  }
  return list.take();
}

}  // namespace trireme::models
