#include <fmt/format.h>
#include <fmt/ranges.h>

#include <trireme/base/error.h>
#include <trireme/base/units.h>
#include <trireme/models/shapes.h>
#include <algorithm>
#include <array>

namespace trireme::models {
namespace {

constexpr std::array<std::string_view, 7> kNames = {"mlp",      "cnn",  "gpt",   "resnet18",
                                                    "resnet50", "tiny", "mlpbig"};

[[noreturn]] void refuse(const std::string& what, const std::string& remedy) {
  throw Error(ErrorCode::invalid_argument, "models", what, remedy);
}

void refuse_option_of(std::string_view key, std::string_view owners, const ModelOptions& options) {
  refuse(fmt::format("{} is an option of {}, but model.name is {}", key, owners, options.name),
         fmt::format("leave {} out", key));
}

void require_positive(std::string_view key, const std::vector<int64_t>& values) {
  for (const int64_t value : values) {
    if (value < 1)
      refuse(fmt::format("{} is {}: every entry must be at least 1", key, values),
             fmt::format("correct {}", key));
  }
}

void require_positive(std::string_view key, int64_t value) {
  if (value < 1)
    refuse(fmt::format("{} is {}, but must be at least 1", key, value),
           fmt::format("correct {}", key));
}

std::vector<int64_t> default_hidden(std::string_view name) {
  if (name == "tiny") return std::vector<int64_t>(64, 64);
  if (name == "mlpbig") return {4096, 4096};
  return {1024, 1024, 1024};
}

void resolve_mlp(ModelOptions& options) {
  const std::vector<int64_t> usual = default_hidden(options.name);
  if (options.hidden.empty()) options.hidden = usual;
  if (options.name != "mlp" && options.hidden != usual) {
    refuse(fmt::format("model.hidden is {}, but the preset {} has hidden layers of its own",
                       options.hidden, options.name),
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
    refuse(fmt::format("model.strides has {} entries and model.channels has {}: there must be one "
                       "stride for each convolution",
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
    refuse(
        fmt::format(
            "model.width is {} and model.heads is {}: the width must be a multiple of the heads",
            options.width, options.heads),
        fmt::format("model.width={}", (options.width / options.heads + 1) * options.heads));
  }
}

void refuse_options_of_other_models(const ModelOptions& options) {
  if (family_of(options) != Family::mlp && !options.hidden.empty())
    refuse_option_of("model.hidden", "mlp", options);
  if (family_of(options) != Family::cnn) {
    if (!options.channels.empty()) refuse_option_of("model.channels", "cnn", options);
    if (!options.strides.empty()) refuse_option_of("model.strides", "cnn", options);
    if (options.batch_norm >= 0) refuse_option_of("model.batch_norm", "cnn", options);
  }
  if (family_of(options) != Family::resnet && options.zero_init >= 0)
    refuse_option_of("model.zero_init", "resnet18 and resnet50", options);
  if (family_of(options) != Family::gpt) {
    if (options.layers >= 0) refuse_option_of("model.layers", "gpt", options);
    if (options.width >= 0) refuse_option_of("model.width", "gpt", options);
    if (options.heads >= 0) refuse_option_of("model.heads", "gpt", options);
    if (options.vocabulary >= 0) refuse_option_of("model.vocabulary", "gpt", options);
    if (options.context >= 0) refuse_option_of("model.context", "gpt", options);
  }
  const bool drops_out = family_of(options) == Family::mlp || family_of(options) == Family::cnn;
  if (!drops_out && options.dropout != 0)
    refuse_option_of("model.dropout", "mlp and cnn", options);
}

}  // namespace

Family family_of(const ModelOptions& options) {
  if (options.name == "cnn") return Family::cnn;
  if (options.name == "gpt") return Family::gpt;
  return options.name.starts_with("resnet") ? Family::resnet : Family::mlp;
}

ModelOptions resolve(const ModelOptions& options) {
  if (std::find(kNames.begin(), kNames.end(), options.name) == kNames.end()) {
    const std::string near = nearest_word(options.name, kNames.data(), kNames.size());
    refuse(fmt::format("model.name is \"{}\": there is no such model", options.name),
           near.empty() ? fmt::format("one of {}", fmt::join(kNames, ", ")) : near);
  }
  refuse_options_of_other_models(options);
  if (!(options.dropout >= 0 && options.dropout < 1)) {
    refuse(fmt::format("model.dropout is {}, but must be at least 0 and below 1", options.dropout),
           "model.dropout=0.5");
  }
  ModelOptions resolved = options;
  switch (family_of(options)) {
    case Family::mlp: resolve_mlp(resolved); break;
    case Family::cnn: resolve_cnn(resolved); break;
    case Family::gpt: resolve_gpt(resolved); break;
    case Family::resnet: resolved.zero_init = options.zero_init == 1 ? 1 : 0; break;
  }
  return resolved;
}

InputSpec default_input(const ModelOptions& options) {
  const ModelOptions resolved = resolve(options);
  if (family_of(resolved) == Family::gpt) return {{resolved.context}, resolved.vocabulary};
  if (family_of(resolved) == Family::cnn) return {{3, 32, 32}, 10};
  if (family_of(resolved) == Family::resnet) return {{3, 224, 224}, 1000};
  if (resolved.name == "tiny") return {{64}, 10};
  if (resolved.name == "mlpbig") return {{2048}, 10};
  return {{784}, 10};
}

int64_t default_batch(const ModelOptions& options) {
  const ModelOptions resolved = resolve(options);
  if (family_of(resolved) == Family::gpt || family_of(resolved) == Family::resnet) return 8;
  if (resolved.name == "mlp") return 128;
  if (resolved.name == "mlpbig") return 64;
  return 32;
}

}  // namespace trireme::models
