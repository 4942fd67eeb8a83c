#include <fmt/format.h>
#include <fmt/ranges.h>

#include <trireme/base/error.h>
#include <trireme/base/units.h>
#include <trireme/config/row.h>
#include <trireme/config/value.h>
#include <trireme/models/checks.h>
#include <trireme/models/family.h>
#include <algorithm>

namespace trireme::models {
namespace {

// Empty lists and negative numbers take the default of the model.
bool is_given(const config::Row& row, const ModelOptions& options) {
  ModelOptions copy = options;
  const config::Slot slot = row.slot(&copy);
  if (const auto* flag = std::get_if<int*>(&slot); flag && **flag < 0) return false;
  if (const auto* number = std::get_if<int64_t*>(&slot); number && **number < 0) return false;
  const void* defaults = config::table_of<ModelOptions>().defaults();
  return config::value_as_text(&options, row) != config::value_as_text(defaults, row);
}

void refuse_keys_of_other_families(const ModelOptions& options) {
  const Family* own = family_of(options);
  for (const config::Row& row : config::table_of<ModelOptions>().rows()) {
    if (row.name == "model.name" || !is_given(row, options)) continue;
    if (own && own->has_key(row.name)) continue;
    refuse(fmt::format("{} is an option of {}, but model.name is {}", row.name,
                       fmt::join(names_with_key(row.name), " and "), options.name),
           fmt::format("leave {} out", row.name));
  }
}

// The models and presets that take the key.
config::OnlyFor owners_of(std::string_view key) {
  std::vector<std::string_view> owners = names_with_key(key), presets = presets_with_key(key);
  owners.insert(owners.end(), presets.begin(), presets.end());
  return {"model.name", std::move(owners)};
}

auto rows_of_layers() {
  using O = ModelOptions;
  return config::group(
      config::row(&O::name, {.name = "model.name",
                             .meaning = "The model (docs/models.md).",
                             .choices = model_names}),
      config::row(&O::hidden,
                  {.name = "model.hidden",
                   .meaning = "mlp: widths of the hidden layers; auto: 1024, 1024, 1024.",
                   .range = config::at_least(1),
                   .only_for = owners_of("model.hidden")}),
      config::row(
          &O::channels,
          {.name = "model.channels",
           .meaning = "cnn: output channels of each 3x3 convolution; auto: the six of the preset.",
           .range = config::at_least(1),
           .only_for = owners_of("model.channels")}),
      config::row(&O::strides,
                  {.name = "model.strides",
                   .meaning = "cnn: stride of each convolution; auto: 1 each, or the preset's.",
                   .range = config::at_least(1),
                   .only_for = owners_of("model.strides")}),
      config::row(&O::batch_norm,
                  {.name = "model.batch_norm",
                   .meaning = "cnn: batch norm after each convolution; auto: true.",
                   .automatic = -1,
                   .only_for = owners_of("model.batch_norm"),
                   .kind = config::Kind::flag}),
      config::row(
          &O::dropout,
          {.name = "model.dropout",
           .meaning = "mlp, cnn: fraction of the values that are dropped before the last layer.",
           .range = config::from_below(0, 1),
           .only_for = owners_of("model.dropout")}));
}

// gpt, resnet and amoebanet.
auto rows_of_tokens() {
  using O = ModelOptions;
  return config::group(
      config::row(&O::layers, {.name = "model.layers",
                               .meaning = "gpt: blocks; auto: 6. amoebanet: normal cells, a "
                                          "multiple of 3; auto: 18.",
                               .range = config::at_least(1),
                               .automatic = -1,
                               .only_for = owners_of("model.layers")}),
      config::row(&O::width, {.name = "model.width",
                              .meaning = "gpt: size of each token's vector; auto: 256. amoebanet: "
                                         "filters, a multiple of 8; auto: 256.",
                              .range = config::at_least(1),
                              .automatic = -1,
                              .only_for = owners_of("model.width")}),
      config::row(&O::heads, {.name = "model.heads",
                              .meaning = "gpt: attention heads, a divisor of the width; auto: 8.",
                              .range = config::at_least(1),
                              .automatic = -1,
                              .only_for = owners_of("model.heads")}),
      config::row(
          &O::vocabulary,
          {.name = "model.vocabulary",
           .meaning = "gpt: number of different tokens; auto: as many as the text has, or 8192.",
           .range = config::at_least(1),
           .automatic = -1,
           .only_for = owners_of("model.vocabulary")}),
      config::row(&O::context,
                  {.name = "model.context",
                   .meaning = "gpt: the most tokens in one sample; auto: data.block, or 128.",
                   .range = config::at_least(1),
                   .automatic = -1,
                   .only_for = owners_of("model.context")}),
      config::row(&O::tied, {.name = "model.tied",
                             .meaning = "gpt: the output head has the weights of the token "
                                        "embedding; auto: false.",
                             .automatic = -1,
                             .only_for = owners_of("model.tied"),
                             .kind = config::Kind::flag}),
      config::row(&O::zero_init,
                  {.name = "model.zero_init",
                   .meaning = "resnet: the last batch norm of each block starts from 0, so that "
                              "the block starts as the identity; auto: false.",
                   .automatic = -1,
                   .only_for = owners_of("model.zero_init"),
                   .kind = config::Kind::flag}));
}

auto rows_of_clicks() {
  using O = ModelOptions;
  return config::group(
      config::row(&O::bottom, {.name = "model.bottom",
                               .meaning = "dlrm: widths of the hidden layers for the numbers; "
                                          "auto: 512, 256, 64.",
                               .range = config::at_least(1),
                               .only_for = owners_of("model.bottom")}),
      config::row(&O::top, {.name = "model.top",
                            .meaning = "dlrm: widths of the hidden layers behind the "
                                       "interactions; auto: 512, 256.",
                            .range = config::at_least(1),
                            .only_for = owners_of("model.top")}),
      config::row(&O::rows, {.name = "model.rows",
                             .meaning = "dlrm: rows of the embedding table of each categorical "
                                        "feature, into which categories are hashed; auto: 10000.",
                             .range = config::at_least(1),
                             .automatic = -1,
                             .only_for = owners_of("model.rows")}),
      config::row(&O::embedding_dim,
                  {.name = "model.embedding_dim",
                   .meaning = "dlrm: size of the vector of each feature; auto: 16.",
                   .range = config::at_least(1),
                   .automatic = -1,
                   .only_for = owners_of("model.embedding_dim")}),
      config::no_row(&O::tables_elsewhere));
}

}  // namespace

config::Rows rows_of(const ModelOptions*) {
  return config::all_of<ModelOptions>(rows_of_layers(), rows_of_tokens(), rows_of_clicks());
}

ModelOptions resolve(const ModelOptions& options) {
  const std::vector<std::string> names = model_names();
  if (std::find(names.begin(), names.end(), options.name) == names.end()) {
    const std::vector<std::string_view> views(names.begin(), names.end());
    const std::string near = nearest_word(options.name, views.data(), views.size());
    refuse(fmt::format("model.name is \"{}\": there is no such model", options.name),
           near.empty() ? fmt::format("one of {}", fmt::join(names, ", ")) : near);
  }
  refuse_keys_of_other_families(options);
  if (!(options.dropout >= 0 && options.dropout < 1)) {
    refuse(fmt::format("model.dropout is {}, but must be at least 0 and below 1", options.dropout),
           "model.dropout=0.5");
  }
  ModelOptions resolved = options;
  if (const Family* family = family_of(options)) family->resolve(resolved);
  return resolved;
}

}  // namespace trireme::models
