#include <fmt/format.h>
#include <fmt/ranges.h>

#include <trireme/base/error.h>
#include <trireme/base/units.h>
#include <trireme/config/names.h>
#include <trireme/config/row.h>
#include <trireme/models/shapes.h>
#include <algorithm>
#include <array>

namespace trireme::models {
namespace {

// The families of the models that come with Trireme.
constexpr std::array<std::pair<std::string_view, Family>, 7> kFamilies{
    {{"mlp", Family::mlp},
     {"cnn", Family::cnn},
     {"gpt", Family::gpt},
     {"resnet18", Family::resnet},
     {"resnet50", Family::resnet},
     {"tiny", Family::mlp},
     {"mlpbig", Family::mlp}}};

config::Names& known_models() {
  static config::Names names = [] {
    std::vector<std::string> shipped;
    for (const auto& [name, family] : kFamilies) shipped.emplace_back(name);
    return config::Names(std::move(shipped));
  }();
  return names;
}

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

namespace {

auto rows_of_layers() {
  const config::OnlyFor cnn{"model.name", {"cnn"}};
  using O = ModelOptions;
  return config::group(
      config::row(&O::name, {.name = "model.name",
                             .meaning = "The model (docs/models.md).",
                             .choices = model_names}),
      config::row(&O::hidden,
                  {.name = "model.hidden",
                   .meaning = "mlp: widths of the hidden layers; auto: 1024, 1024, 1024.",
                   .range = config::at_least(1),
                   .only_for = {"model.name", {"mlp"}}}),
      config::row(
          &O::channels,
          {.name = "model.channels",
           .meaning = "cnn: output channels of each 3x3 convolution; auto: the six of the preset.",
           .range = config::at_least(1),
           .only_for = cnn}),
      config::row(&O::strides,
                  {.name = "model.strides",
                   .meaning = "cnn: stride of each convolution; auto: 1 each, or the preset's.",
                   .range = config::at_least(1),
                   .only_for = cnn}),
      config::row(&O::batch_norm,
                  {.name = "model.batch_norm",
                   .meaning = "cnn: batch norm after each convolution; auto: true.",
                   .automatic = -1,
                   .only_for = cnn,
                   .kind = config::Kind::flag}),
      config::row(
          &O::dropout,
          {.name = "model.dropout",
           .meaning = "mlp, cnn: fraction of the values that are dropped before the last layer.",
           .range = config::from_below(0, 1),
           .only_for = {"model.name", {"mlp", "cnn", "tiny", "mlpbig"}}}));
}

// gpt and resnet.
auto rows_of_tokens() {
  const config::OnlyFor gpt{"model.name", {"gpt"}};
  using O = ModelOptions;
  return config::group(
      config::row(&O::layers, {.name = "model.layers",
                               .meaning = "gpt: blocks; auto: 6.",
                               .range = config::at_least(1),
                               .automatic = -1,
                               .only_for = gpt}),
      config::row(&O::width, {.name = "model.width",
                              .meaning = "gpt: size of each token's vector; auto: 256.",
                              .range = config::at_least(1),
                              .automatic = -1,
                              .only_for = gpt}),
      config::row(&O::heads, {.name = "model.heads",
                              .meaning = "gpt: attention heads, a divisor of the width; auto: 8.",
                              .range = config::at_least(1),
                              .automatic = -1,
                              .only_for = gpt}),
      config::row(
          &O::vocabulary,
          {.name = "model.vocabulary",
           .meaning = "gpt: number of different tokens; auto: as many as the text has, or 8192.",
           .range = config::at_least(1),
           .automatic = -1,
           .only_for = gpt}),
      config::row(&O::context,
                  {.name = "model.context",
                   .meaning = "gpt: the most tokens in one sample; auto: data.block, or 128.",
                   .range = config::at_least(1),
                   .automatic = -1,
                   .only_for = gpt}),
      config::row(&O::zero_init,
                  {.name = "model.zero_init",
                   .meaning = "resnet: the last batch norm of each block starts from 0, so that "
                              "the block starts as the identity; auto: false.",
                   .automatic = -1,
                   .only_for = {"model.name", {"resnet18", "resnet50"}},
                   .kind = config::Kind::flag}));
}

}  // namespace

config::Rows rows_of(const ModelOptions*) {
  return config::all_of<ModelOptions>(rows_of_layers(), rows_of_tokens());
}

std::vector<std::string> model_names() { return known_models().all(); }
void add_model(const std::string& name) { known_models().add(name); }

Family family_of(const ModelOptions& options) {
  for (const auto& [name, family] : kFamilies)
    if (name == options.name) return family;
  return Family::registered;
}

ModelOptions resolve(const ModelOptions& options) {
  const std::vector<std::string> names = model_names();
  if (std::find(names.begin(), names.end(), options.name) == names.end()) {
    const std::vector<std::string_view> views(names.begin(), names.end());
    const std::string near = nearest_word(options.name, views.data(), views.size());
    refuse(fmt::format("model.name is \"{}\": there is no such model", options.name),
           near.empty() ? fmt::format("one of {}", fmt::join(names, ", ")) : near);
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
    case Family::registered: break;
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
