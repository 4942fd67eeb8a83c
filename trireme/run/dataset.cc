#include <fmt/format.h>
#include <fmt/ranges.h>

#include <trireme/base/error.h>
#include <trireme/data/data_kinds.h>
#include <trireme/models/family.h>
#include <trireme/parallel/servers/tables/row_table.h>
#include <trireme/run/dataset.h>

namespace trireme {

Dataset read_data(const Config& config) {
  const std::string& name = config.data.name;
  const auto kind = data::find_kind_or_null(name);
  if (!kind)
    throw Error(ErrorCode::invalid_argument, "config",
                fmt::format("data.name is \"{}\", and no data set has this name", name),
                fmt::format("{}", fmt::join(data::data_sets(), ", ")));
  Dataset data = kind->read(config.data);
  if (data.has_values && config.loss == kDefaultLoss)
    throw Error(ErrorCode::invalid_argument, "config",
                fmt::format("loss.name is {}, which is for classes, and the targets of this data "
                            "set are values",
                            config.loss),
                "loss.name=mse, or data.target: a field of whole numbers");
  return data;
}

void identify_data(Json& keys, const Config& config, const Dataset& data) {
  if (data.content.empty()) return;
  keys["data.content"] = data.content;
  if (!data.test_content.empty()) keys["data.test_content"] = data.test_content;
  if (!data::find_kind(config.data.name)->ships()) return;
  const bool holds_out = !data.split.test.empty();
  if (!holds_out) keys.erase("data.test_fraction");
  if (!holds_out || !data::find_kind(config.data.name)->uses("data.split_seed"))
    keys.erase("data.split_seed");
}

plan::OrderOptions order_of(const Config& config, const Dataset& data) {
  plan::OrderOptions order = config.trainer.shuffle;
  if (order.kind != plan::OrderKind::blocks) return order;
  data::require_blocks(*data::find_kind(config.data.name));
  if (!data.train_blocks.empty()) order.blocks = plan::data_blocks(data.train_blocks);
  return order;
}

plan::DataPlan data_plan_of(const Config& config, const Dataset& data) {
  return plan::DataPlan({.samples = data.train_samples,
                         .batch = config.trainer.batch,
                         .seed = config.trainer.seed,
                         .shuffle = order_of(config, data),
                         .drop_last = config.trainer.drop_last,
                         .virtual_shards = config.trainer.virtual_shards});
}

plan::DType reduced_dtype(const Config& config) {
  const plan::DType dtype = config.trainer.dtype;
  return plan::bytes_of(dtype) == 2 ? plan::DType::float32 : dtype;
}

plan::PsOptions servers_for(const Config& config) {
  plan::PsOptions options = config.trainer.ps;
  if (config.tables.on_servers && options.replication == 0 &&
      !grows_without_limits(table_options_of(config.tables, config.optimizer)))
    options.replication = 1;
  return options;
}

models::ModelOptions model_for(const Config& config, const Dataset& data) {
  models::ModelOptions model = config.model;
  model.tables_elsewhere = config.tables.on_servers;
  const models::Family* family = models::family_of(model);
  if (!family || !family->takes_tokens || !data::find_kind(config.data.name)->has_tokens)
    return model;
  if (family->has_preset(model.name)) return model;  // Its sizes are fixed.
  if (model.vocabulary < 0) model.vocabulary = data.input.classes;
  if (model.context < 0) model.context = data.input.shape[0];
  return model;
}

}  // namespace trireme
