#include <ATen/core/Tensor.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <trireme/base/error.h>
#include <trireme/config/registry.h>
#include <trireme/data/text_source.h>
#include <trireme/models/build.h>
#include <trireme/parallel/optimizer.h>
#include <trireme/run/dataset.h>
#include <trireme/run/places.h>
#include <trireme/run/training.h>

namespace trireme {
namespace {

config::Registry<DataMaker>& own_data() {
  static config::Registry<DataMaker> makers("data set");
  return makers;
}

void add_sources(Training& training, Dataset data) {
  const int64_t train = data.train_samples, all = train + data.test_samples;
  if (data.text) {
    training.train = std::make_shared<TextSource>(data.text, 0, train);
    if (all > train) training.test = std::make_shared<TextSource>(data.text, train, all);
  } else {
    training.train = std::make_shared<ImageSource>(std::move(data.train));
    if (all > train) training.test = std::make_shared<ImageSource>(std::move(data.test));
  }
}

// Adds data and model. Returns the form of a sample.
models::InputSpec add_data_and_model(Training& training, const Config& config) {
  if (own_data().has(config.data.name)) {
    OwnData data = own_data().find(config.data.name)(config.data);
    training.train = std::move(data.train);
    training.test = std::move(data.test);
    const std::string& content = data.content.empty() ? config.data.path : data.content;
    if (!content.empty()) training.options.config["data.content"] = content;
    training.job.model = models::make_factory(config.model, data.input);
    return data.input;
  }
  Dataset data = read_data(config);
  identify_data(training.options.config, config, data);
  training.job.model = models::make_factory(model_for(config, data), data.input);
  const models::InputSpec input = data.input;
  add_sources(training, std::move(data));
  return input;
}

}  // namespace

void register_data(const std::string& name, DataMaker maker) {
  own_data().add(name, std::move(maker), data::data_sets());
  data::add_data_set(name);
}

OptimizerFactory make_optimizer(const OptimizerOptions& o) {
  if (o.name == "sgd")
    return SGD{.lr = o.lr,
               .momentum = o.momentum,
               .weight_decay = o.weight_decay,
               .nesterov = o.nesterov};
  if (o.name == "adam")
    return Adam{.lr = o.lr,
                .beta1 = o.beta1,
                .beta2 = o.beta2,
                .eps = o.eps,
                .weight_decay = o.weight_decay};
  if (o.name == "adamw")
    return AdamW{.lr = o.lr,
                 .beta1 = o.beta1,
                 .beta2 = o.beta2,
                 .eps = o.eps,
                 .weight_decay = o.weight_decay};
  if (o.name == "rmsprop")
    return RMSprop{.lr = o.lr,
                   .alpha = o.alpha,
                   .eps = o.eps,
                   .weight_decay = o.weight_decay,
                   .momentum = o.momentum};
  if (o.name == "lars")
    return Lars{
        .lr = o.lr, .momentum = o.momentum, .weight_decay = o.weight_decay, .trust = o.trust};
  if (o.name == "lamb")
    return Lamb{.lr = o.lr,
                .beta1 = o.beta1,
                .beta2 = o.beta2,
                .eps = o.eps,
                .weight_decay = o.weight_decay};
  if (o.name == "adagrad")
    return Adagrad{.lr = o.lr, .weight_decay = o.weight_decay, .eps = o.eps};
  throw Error(ErrorCode::invalid_argument, "config",
              fmt::format("optimizer.name is \"{}\", and no optimizer has this name", o.name),
              "sgd, adam, adamw, rmsprop, adagrad, lars or lamb");
}

Training training_of(const Config& config) {
  check(config);
  Training training{.options = config.trainer};
  TrainerOptions& options = training.options;
  if (!config.record.dir.empty()) options.checkpoint.dir = checkpoint_dir(config);
  if (!options.checkpoint.dir.empty())
    options.inject.marks = marks_dir(options.checkpoint.dir).string();
  options.config = keys_to_agree(config);
  const models::InputSpec input = add_data_and_model(training, config);
  options.config["input"] =
      fmt::format("{} of {} classes", fmt::join(input.shape, "x"), input.classes);
  training.job.name = fmt::format("{} on {}", config.model.name, config.data.name);
  training.job.optimizer = make_optimizer(config.optimizer);
  return training;
}

}  // namespace trireme
