#include <fmt/format.h>
#include <fmt/ranges.h>

#include <trireme/base/error.h>
#include <trireme/data/data_kinds.h>
#include <trireme/models/family.h>
#include <trireme/parallel/servers/tables/row_table.h>
#include <trireme/run/dataset.h>

namespace trireme {

namespace {

// Refuses what the rules of keys cannot tell before the files are read.
void require_model_for(const Config& config, const Dataset& data) {
  const models::Family* family = models::family_of(config.model);
  if (!family || family->takes_tokens) return;
  const auto refuse = [&](const std::string& what, const std::string& remedy) {
    throw Error(
        ErrorCode::invalid_argument, "config",
        fmt::format("the samples of data.name {} are {}, but model.name is {}, which takes "
                    "{}",
                    config.data.name, what, config.model.name,
                    data.has_tokens ? "no tokens" : "samples of one shape"),
        remedy);
  };
  if (data.has_tokens)
    refuse("rows of tokens", "model.name=gpt, or data.inputs and data.target: fields of numbers");
  if (data.input.is_ragged)
    refuse(
        "rows of different lengths, which the stage pad makes as long as the longest of a batch",
        "a model of your own, which gets their lengths (docs/models.md)");
}

}  // namespace

void require_one_length(const Config& config, const Dataset& data, const plan::BatchSizes& sizes) {
  const auto refuse = [](const std::string& uneven) {
    if (uneven.empty()) return;
    throw Error(ErrorCode::invalid_argument, "config",
                fmt::format("data.stages has neither pad nor pack, and the samples of a batch must "
                            "have one length: {}",
                            uneven),
                "the stage pad, or pack for tokens");
  };
  if (sizes.micro > 1 && config.trainer.shuffle.kind != plan::OrderKind::none) refuse(data.uneven);
  // An evaluation computes as many samples at once as the whole batch has.
  if (sizes.global > 1) refuse(data.uneven_test);
}

Dataset read_data(const Config& config) {
  const std::string& name = config.data.name;
  const auto kind = data::find_kind_or_null(name);
  if (!kind)
    throw Error(ErrorCode::invalid_argument, "config",
                fmt::format("data.name is \"{}\", and no data set has this name", name),
                fmt::format("{}", fmt::join(data::data_sets(), ", ")));
  Dataset data = kind->read(config.data);
  require_model_for(config, data);
  if (data.has_values && config.loss == kDefaultLoss)
    throw Error(ErrorCode::invalid_argument, "config",
                fmt::format("loss.name is {}, which is for classes, and {}", config.loss,
                            data.has_target ? "the targets of this data set are values"
                                            : "the records of this data set have no field for a "
                                              "target, so each sample is its own"),
                data.has_target ? "loss.name=mse, or data.target: a field of whole numbers"
                                : "data.target: a field of whole numbers, the stage "
                                  "decode_record, or loss.name=mse to give samples back");
  return data;
}

void identify_data(Json& keys, const Config& config, const Dataset& data) {
  // The order of a mixture says the same ("data.order"), and other data sets have no such keys.
  for (const char* const key : {"data.weights_at", "data.when_exhausted", "data.epoch_samples"})
    keys.erase(key);
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
  order.mixture = data.mixture;
  if (data.by_length) {
    plan::LengthBatches lengths = *data.by_length;
    if (lengths.batch == 0) lengths.batch = config.trainer.batch;
    order.by_length = std::make_shared<const plan::LengthBatches>(std::move(lengths));
  }
  if (order.kind != plan::OrderKind::blocks) return order;
  data::require_blocks(*data::find_kind(config.data.name));
  if (!data.train_blocks.empty()) order.blocks = plan::data_blocks(data.train_blocks);
  if (!data.mixture) return order;
  plan::MixtureOptions mixture = data.mixture->options();
  for (size_t i = 0; i < mixture.sources.size(); ++i)
    if (!data.source_blocks[i].empty())
      mixture.sources[i].blocks = plan::data_blocks(data.source_blocks[i]);
  order.mixture = std::make_shared<const plan::Mixture>(std::move(mixture));
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
  if (!family || !family->takes_tokens || !data.has_tokens) return model;
  if (family->has_preset(model.name)) return model;  // Its sizes are fixed.
  if (model.vocabulary < 0) model.vocabulary = data.input.classes;
  if (model.context < 0) model.context = data.input.shape[0];
  return model;
}

}  // namespace trireme
