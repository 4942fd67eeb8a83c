#include <ATen/core/Tensor.h>

#include <trireme/base/error.h>
#include <trireme/base/files.h>
#include <trireme/cli/worker/commands.h>
#include <trireme/run/training.h>
#include <trireme/train/report.h>
#include <trireme/train/stop_signal.h>
#include <unistd.h>

namespace trireme::cli {
namespace {

struct WorkerTrainArguments {
  ConfigSource source;
  std::string report;
  bool quiet = false, json = false;
};

struct Files {
  std::filesystem::path report, log, events;
};

// Adds rank 0's sinks, and returns the files that they write.
Files add_sinks(TrainerOptions& options, const Config& config,
                const WorkerTrainArguments& arguments) {
  const std::filesystem::path dir = config.record.dir;
  require_writable_folder(dir);
  Files files{dir / "report.json", {}, {}};
  if (config.record.json_lines) files.log = dir / "log.jsonl";
  if (config.record.tensorboard) files.events = dir / "events";
  const bool progress = config.record.progress && !arguments.quiet, json = arguments.json;
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

int train(const WorkerTrainArguments& arguments) {
  // A stop may come before the first step, or while the report is written.
  const StopSignal until_the_end;
  const Config config = load_config(arguments.source);
  World world = World::join(config.world);
  check_with_workers(config, world.workers());
  Training training = training_of(config);
  TrainerOptions& options = training.options;
  if (const char* started = std::getenv("TRIREME_STARTED"))
    options.started_at = std::atof(started);
  const Files files = add_sinks(options, config, arguments);
  options.publish = [&](Report& report) { write_down(report, files, arguments); };
  Trainer trainer(world, options);
  const Report report = trainer.fit(training.job, training.train, training.test);
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
