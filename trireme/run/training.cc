#include <ATen/core/Tensor.h>
#include <dlfcn.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/headeronly/version.h>

#include <trireme/base/error.h>
#include <trireme/base/files.h>
#include <trireme/base/log.h>
#include <trireme/data/data_kinds.h>
#include <trireme/data/kinds/mixture_set.h>
#include <trireme/data/kinds/record_set.h>
#include <trireme/data/source_makers.h>
#include <trireme/models/build.h>
#include <trireme/models/family.h>
#include <trireme/parallel/load_weights.h>
#include <trireme/parallel/optimizer.h>
#include <trireme/parallel/servers/tables/model_tables.h>
#include <trireme/run/data_service.h>
#include <trireme/run/dataset.h>
#include <trireme/run/input_plan.h>
#include <trireme/run/model_library.h>
#include <trireme/run/place_cache.h>
#include <trireme/run/places.h>
#include <trireme/run/training.h>
#include <trireme/train/data_facts.h>
#include <algorithm>

namespace trireme {
namespace {

// It stays open to the end of the process.
void open_library(const std::filesystem::path& path,
                  const std::vector<Registration>& registrations) {
  for (const auto& [kind, name, torch, trireme] : registrations) {
    if (torch == TORCH_VERSION) continue;
    throw Error(ErrorCode::invalid_argument, "config",
                fmt::format("model.library is \"{}\", which was built with LibTorch {}, and this "
                            "process has LibTorch {}",
                            path.string(), torch, TORCH_VERSION),
                "a build of it with the same LibTorch");
  }
  if (dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL) != nullptr) return;
  throw Error(
      ErrorCode::invalid_argument, "config",
      fmt::format("model.library is \"{}\", which cannot be opened: {}", path.string(), dlerror()),
      "a module that trireme_add_model_library() of this Trireme's CMake package makes, "
      "with this Trireme's headers; a programme of your own that opens one must export its "
      "symbols (ENABLE_EXPORTS)");
}
[[maybe_unused]] const bool opens_libraries = set_library_opener(open_library);

// A registered maker reads the data and makes the sources at once, so the Dataset holds both.
Dataset dataset_of_own(OwnData own, const std::string& path) {
  Dataset data;
  data.content = own.content.empty() ? path : own.content;
  if (own.train) data.train_samples = own.train->size();
  if (own.test) data.test_samples = own.test->size();
  data.input = own.input;
  data.train_blocks = own.train_blocks;
  data.samples = std::move(own);
  return data;
}

data::Sources sources_of_own(const Dataset& data) {
  const auto& own = std::any_cast<const OwnData&>(data.samples);
  return {own.train, own.test};
}

ModelFactory with_weights(ModelFactory make, const WeightsSource& source) {
  WeightsOptions options;
  if (!source.optional.empty()) options.allow_missing.push_back(source.optional);
  const auto file = std::make_shared<const WeightsFile>(source.file, std::move(options));
  return [make = std::move(make), file] {
    Model model = make();
    file->write_to(*model.module);
    return model;
  };
}

// Adds data and model. Returns the form of a sample.
models::InputSpec add_data_and_model(Training& training, const Config& config) {
  const Dataset data = read_data(config);
  identify_data(training.options.config, config, data);
  const models::ModelOptions model = model_for(config, data);
  if (config.tables.on_servers) {
    training.job.tables = std::make_shared<ModelTables>(
        models::family_of(model)->tables(models::resolve(model), data.input,
                                         config.tables.unbounded),
        table_options_of(config.tables, config.optimizer));
    training.job.model = models::make_factory(model, data.input, training.job.tables);
  } else {
    training.job.model = models::make_factory(model, data.input);
  }
  if (const std::string& file = config.weights.file; !file.empty()) {
    if (path_exists(file))
      training.job.model = with_weights(std::move(training.job.model), config.weights);
    else
      training.job.has_no_start =
          fmt::format("model.weights is \"{}\", and there is no such file", file);
  }
  training.options.ps = servers_for(config);
  training.options.shuffle = order_of(config, data);
  use_data_service(config);
  data::Sources sources = data::make_sources(config.data.name, data);
  training.train = std::move(sources.train);
  training.test = std::move(sources.test);
  return data.input;
}

// `world` may be null.
Training make_training(const Config& given, World* world) {
  check(given);
  Config config = given;
  const int replicas = wants_cache_choice(config) && world && !world->is_elastic()
                           ? check_with_workers(config, world->workers()).replicas_per_worker
                           : 1;
  if (const std::string line = place_cache_in_job(config, world, replicas); !line.empty())
    log_info("{}", line);
  Training training{.options = config.trainer};
  TrainerOptions& options = training.options;
  options.input_bytes = config.data.memory_bytes;
  if (const int caches = data::caches_in_memory(config.data); caches > 0) {
    options.caches = caches;
    options.cache_bytes = data::most_in_memory(config.data);
  }
  if (!config.record.dir.empty()) options.checkpoint.dir = checkpoint_dir(config);
  if (!options.checkpoint.dir.empty())
    options.inject.marks = marks_dir(options.checkpoint.dir).string();
  options.config = keys_to_agree(config);
  options.config[kInputPlan] = input_plan_of(config).to_json();
  const models::InputSpec input = add_data_and_model(training, config);
  options.config["input"] =
      fmt::format("{} of {} classes", fmt::join(input.shape, "x"), input.classes);
  if (input.categories > 0)
    options.config["input"] =
        fmt::format("{} and {} categories of {} classes", fmt::join(input.shape, "x"),
                    input.categories, input.classes);
  training.job.name = fmt::format("{} on {}", config.model.name, config.data.name);
  training.job.optimizer = make_optimizer(config.optimizer);
  training.job.loss = find_loss(config.loss);
  const std::vector<std::string> wanted = split_names(config.metrics);
  for (Metric& metric : registered_metrics())
    if (std::ranges::find(wanted, metric.name) != wanted.end())
      training.job.metrics.push_back(std::move(metric));
  return training;
}

}  // namespace

void register_data(const std::string& name, DataMaker maker) {
  data::DataKind kind{.name = name, .has_blocks = true};
  if (maker)
    kind.read = [maker = std::move(maker)](const data::DataOptions& options) {
      return dataset_of_own(maker(options), options.path);
    };
  data::add_kind(std::move(kind));
  data::add_source_maker(name, sources_of_own);
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

Training training_of(const Config& given) { return make_training(given, nullptr); }
Training training_of(const Config& given, World& world) { return make_training(given, &world); }

}  // namespace trireme
