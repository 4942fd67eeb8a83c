#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <fmt/ranges.h>

#include <trireme/base/error.h>
#include <trireme/base/files.h>
#include <trireme/base/log.h>
#include <trireme/cli/config_plan.h>
#include <trireme/cli/paths.h>
#include <trireme/cli/worker/commands.h>
#include <trireme/comm/dtype.h>
#include <trireme/data/text_source.h>
#include <trireme/models/build.h>
#include <trireme/train/stop_signal.h>
#include <trireme/train/trainer.h>
#include <unistd.h>
#include <thread>

namespace trireme::cli {
namespace {

struct WorkerTrainArguments {
  ConfigSource source;
  std::string report;
  bool quiet = false, json = false;
};

OptimizerFactory optimizer_of(const Config& config) {
  const auto& o = config.optimizer;
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
  return Adagrad{.lr = o.lr, .weight_decay = o.weight_decay, .eps = o.eps};
}

// The keys that change what is computed. They must be equal on all ranks. Paths, addresses and
// sinks may differ from host to host.
Json keys_to_agree(const Config& config) {
  static constexpr std::string_view kOwn[] = {"run.",
                                              "monitor.",
                                              "cost.",
                                              "checkpoint.dir",
                                              "comm.interface",
                                              "comm.table",
                                              "launch.",
                                              "device.",
                                              "data.path",
                                              "data.images",
                                              "data.labels",
                                              "data.test_images",
                                              "data.test_labels",
                                              "data.threads",
                                              "data.prefetch"};
  Json keys = Json::object();
  for (const auto& [key, value] : flatten(config)) {
    const bool own = std::any_of(std::begin(kOwn), std::end(kOwn),
                                 [&](std::string_view prefix) { return key.starts_with(prefix); });
    if (!own) keys[key] = value;
  }
  return keys;
}

WorldOptions world_options(const Config& config) {
  WorldOptions options;
  options.backend = config.comm.backend;
  options.all_reduce = config.strategy.all_reduce;
  options.table = config.comm.table;
  options.interface = config.comm.interface;
  options.timeout = config.comm.timeout;
  options.heartbeat_interval = config.comm.heartbeat_interval;
  options.straggler_factor = config.comm.straggler_factor;
  if (config.comm.heartbeat_timeout > Milliseconds(0))
    options.heartbeat_timeout = config.comm.heartbeat_timeout;
  return options;
}

TrainerOptions trainer_options(const Config& config, const ResolvedStrategy& strategy,
                               const Dataset& data) {
  TrainerOptions options;
  options.strategy = strategy.name;
  options.replicas = strategy.replicas_per_worker;
  options.epochs = config.train.epochs >= 0 ? config.train.epochs : options.epochs;
  options.steps = config.train.steps;
  options.batch = config.data.batch;
  options.seed = static_cast<uint64_t>(config.train.seed);
  options.shuffle = config.data.shuffle;
  options.drop_last = config.data.drop_last;
  options.dtype = to_torch(plan::dtype_from_string(config.train.dtype));
  if (config.train.precision == "bf16") options.autocast = at::kBFloat16;
  if (config.train.precision == "fp16") options.autocast = at::kHalf;
  if (config.train.precision == "fp16" || config.train.dtype == "float16")
    options.loss_scaling = {.initial = config.train.loss_scale};
  options.ema_decay = config.train.ema_decay;
  options.inject = {parse_faults(config.inject.faults),
                    marks_dir(checkpoint_dir(config)).string()};
  options.share_parameters = may_share_parameters(config);
  options.guard = {config.guard.policy, config.guard.spike, config.guard.window,
                   config.guard.check_replicas_every};
  options.sync_batch_norm = config.strategy.sync_batch_norm;
  options.compression = compression_options(config);
  options.local = local_sgd_options(config);
  options.virtual_shards = config.reproducible.virtual_shards;
  options.rate_scaling = {config.optimizer.scale_lr, config.optimizer.base_batch};
  options.resize = {config.elastic.batch, config.elastic.lr, config.elastic.warmup_steps,
                    config.elastic.workers};
  options.accumulate = config.train.accumulate;
  options.clip_norm = config.train.clip_norm;
  options.schedule = {config.schedule.name,    config.schedule.gamma,        0,
                      config.schedule.minimum, config.schedule.warmup_steps, 0};
  options.schedule_every_epochs = config.schedule.every;
  options.evaluate_every = config.train.evaluate_every;
  const CheckpointEvery every = parse_every(config.checkpoint.every);
  options.checkpoint = {checkpoint_dir(config),
                        every.steps,
                        every.epochs,
                        config.checkpoint.keep,
                        config.checkpoint.keep_every,
                        config.checkpoint.keep_best,
                        config.checkpoint.background,
                        config.checkpoint.writers};
  options.loader_threads = config.data.threads;
  options.prefetch = config.data.prefetch;
  options.threads = at::get_num_threads();  // The launching side has set OMP_NUM_THREADS.
  // The number is the same everywhere, however many replicas a host has.
  if (config.reproducible.virtual_shards > 0) options.threads = 1;
  if (config.device.threads > 0) options.threads = config.device.threads;
  options.buckets = bucket_options(config);
  options.cost = {config.cost.per_cpu_hour, config.cost.per_device_hour};
  options.config = keys_to_agree(config);
  identify_data(options.config, config, data);
  options.config["input"] =
      fmt::format("{} of {} classes", fmt::join(data.input.shape, "x"), data.input.classes);
  if (const char* started = std::getenv("TRIREME_STARTED"))
    options.started_at = std::atof(started);
  return options;
}

struct Files {
  std::filesystem::path report, log, events;
};

// Adds rank 0's sinks, and returns the files that they write.
Files add_sinks(TrainerOptions& options, const Config& config,
                const WorkerTrainArguments& arguments) {
  const std::filesystem::path dir = config.run.dir;
  require_writable_folder(dir);
  Files files{dir / "report.json", {}, {}};
  if (config.monitor.json_lines) files.log = dir / "log.jsonl";
  if (config.monitor.tensorboard) files.events = dir / "events";
  const bool progress = config.monitor.progress && !arguments.quiet, json = arguments.json;
  options.sinks.push_back(monitor::make_on_demand([files, progress, json] {
    std::vector<std::unique_ptr<monitor::Sink>> sinks;
    const char* mode = std::getenv("TRIREME_PROGRESS");
    const bool to_launcher = mode != nullptr && std::string_view(mode) == "lines";
    std::FILE* const out = json ? stderr : stdout;
    if (progress)
      sinks.push_back(to_launcher ? monitor::make_progress_lines(stdout)
                                  : monitor::make_progress(out, isatty(fileno(out)) != 0));
    if (!files.log.empty()) sinks.push_back(monitor::make_json_lines(files.log));
    if (!files.events.empty()) sinks.push_back(monitor::make_tensorboard(files.events));
    return sinks;
  }));
  return files;
}

void write_down(Report& report, const Files& files, const WorkerTrainArguments& arguments) {
  report.files["report"] = arguments.report.empty() ? files.report.string() : arguments.report;
  if (!files.log.empty()) report.files["log"] = files.log.string();
  if (!files.events.empty()) report.files["events"] = files.events.string();
  const std::string text = report.to_json().dump(2) + "\n";
  write_file_atomically(files.report, text);
  if (!arguments.report.empty()) write_file_atomically(arguments.report, text);
}

// Called once, when no event can bring the workers together again.
void tell(const Report& report, const std::vector<std::shared_ptr<monitor::Sink>>& sinks,
          const WorkerTrainArguments& arguments) {
  const Json json = report.to_json();
  for (const auto& sink : sinks) sink->on_end({report.stopped, json});
  if (arguments.json) fmt::print("{}\n", json.dump());
}

struct Sources {
  std::shared_ptr<const Source> train, test;  // test may be null.
};

Sources sources_of(Dataset data) {
  Sources sources;
  const int64_t train = data.train_samples, all = train + data.test_samples;
  if (data.text) {
    sources.train = std::make_shared<TextSource>(data.text, 0, train);
    if (all > train) sources.test = std::make_shared<TextSource>(data.text, train, all);
  } else {
    sources.train = std::make_shared<ImageSource>(std::move(data.train));
    if (all > train) sources.test = std::make_shared<ImageSource>(std::move(data.test));
  }
  return sources;
}

int train(const WorkerTrainArguments& arguments) {
  // A stop may come before the first step, or while the report is written.
  const StopSignal until_the_end;
  const Config config = load_config(arguments.source);
  World world = World::join(world_options(config));
  const ResolvedStrategy strategy = check_with_workers(config, world.workers());
  Dataset data = read_data(config);
  TrainerOptions options = trainer_options(config, strategy, data);
  const Files files = add_sinks(options, config, arguments);

  Job job;
  job.name = fmt::format("{} on {}", config.model.name, config.data.name);
  job.model = models::make_factory(model_for(config, data), data.input);
  job.optimizer = optimizer_of(config);
  const Sources sources = sources_of(std::move(data));
  options.publish = [&](Report& report) { write_down(report, files, arguments); };
  Trainer trainer(world, options);
  const Report report = trainer.fit(job, sources.train, sources.test);
  if (world.worker() == 0 && !report.dismissed) tell(report, options.sinks, arguments);
  world.leave();
  return report.stopped ? kExitStopped : kExitOk;
}

}  // namespace

void add_worker_train(Command app) {
  auto arguments = std::make_shared<WorkerTrainArguments>();
  Command command = app.subcommand("train", "One worker of a training run");
  command.option("config", arguments->source.file);
  command.repeated("--set", arguments->source.set);
  command.option("--report", arguments->report);
  command.flag("--quiet", arguments->quiet);
  command.flag("--json", arguments->json);
  command.action([arguments] { return train(*arguments); });
}

}  // namespace trireme::cli
