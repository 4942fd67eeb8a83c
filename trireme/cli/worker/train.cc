#include <ATen/core/Tensor.h>

#include <trireme/base/error.h>
#include <trireme/base/files.h>
#include <trireme/base/unix_time.h>
#include <trireme/cli/run_readers.h>
#include <trireme/cli/worker/commands.h>
#include <trireme/comm/nccl/nccl_group.h>
#include <trireme/membership/identity.h>
#include <trireme/run/training.h>
#include <trireme/train/report.h>
#include <trireme/train/server_tasks.h>
#include <trireme/train/stop_signal.h>
#include <charconv>
#include <cstring>
#include <thread>

namespace trireme::cli {
namespace {

struct WorkerTrainArguments {
  ConfigSource source;
  std::string report;
  bool quiet = false, json = false;
};

void write_down(Report& report, const monitor::RunFiles& files,
                const WorkerTrainArguments& arguments) {
  report.files["report"] = arguments.report.empty() ? files.report.string() : arguments.report;
  if (!files.log.empty()) report.files["log"] = files.log.string();
  if (!files.events.empty()) report.files["events"] = files.events.string();
  const std::string text = report.to_json().dump(2) + "\n";
  write_file_atomically(files.report, text);
  if (!arguments.report.empty()) write_file_atomically(arguments.report, text);
}

// Called once, when no event can bring the workers together again.
void tell(const Report& report, World& world,
          const std::vector<std::shared_ptr<monitor::Sink>>& sinks,
          const WorkerTrainArguments& arguments) {
  const monitor::RunEnd end{report.stopped, report.to_json()};
  for (const auto& sink : sinks) sink->take(end);
  world.tell_event({.rank = 0, .time = unix_seconds(), .event = end});
  if (arguments.json) fmt::print("{}\n", end.report.dump());
}

// GPUs speak with each other by NCCL, where it was compiled in. An elastic job cannot: NCCL does
// not continue after a peer is lost.
WorldOptions world_options_of(const Config& config) {
  WorldOptions options = config.world;
  const membership::Identity identity = membership::resolve_identity(Environment::of_process());
  const bool has_one_each = config.trainer.replicas == 1 || config.trainer.replicas == -1;
  if (config.trainer.device == "cuda" && options.backend == "auto" && has_one_each &&
      identity.workers > 1 && !identity.elastic && comm::nccl_is_compiled_in())
    options.backend = "nccl";
  return options;
}

// The scheduler of DMLC hosts the coordinator until all workers have ended.
int coordinate(World& world) {
  world.connect();
  while (!world.finish_wanted() && !StopSignal::requested())
    std::this_thread::sleep_for(Milliseconds(20));
  world.leave();
  return kExitOk;
}

int evaluate(World& world, const Config& config, Training training) {
  if (training.options.checkpoint.dir.empty())
    throw Error(ErrorCode::invalid_argument, "cli",
                "checkpoint.dir and run.dir are empty, so the evaluator finds no checkpoints",
                "checkpoint.dir, the same folder for worker 0 and the evaluator");
  const EvaluatorFiles files = files_of_evaluator(config);
  if (!files.events.empty())
    training.options.sinks.push_back(monitor::make_tensorboard(files.events));
  Trainer(world, training.options)
      .evaluate_checkpoints(training.job, training.train, training.test, files.curve);
  world.leave();
  return kExitOk;
}

// A side task of the job.
int serve(World& world, const Config& config, const Training& training) {
  if (world.task().role == membership::kSchedulerRole) return coordinate(world);
  if (world.task().role == membership::kEvaluatorRole) return evaluate(world, config, training);
  if (world.task().role != membership::kServerRole)
    throw Error(
        ErrorCode::unsupported, "cli",
        fmt::format("{} starts trireme train, which has no such role", world.task().name()),
        "the roles worker, ps and evaluator");
  Trainer(world, training.options).serve(training.job, training.train, training.test);
  world.leave();
  return kExitOk;
}

int train(const WorkerTrainArguments& arguments) {
  // A stop may come before the first step, or while the report is written.
  const StopSignal until_the_end;
  const Config config = load_config(arguments.source);
  World world = World::join(world_options_of(config));
  check_with_workers(config, world.workers());
  Training training = training_of(config, world);
  TrainerOptions& options = training.options;
  if (!world.identity().is_worker()) return serve(world, config, training);
  if (const char* started = std::getenv("TRIREME_STARTED"))
    std::from_chars(started, started + std::strlen(started), options.started_at);
  const monitor::RunFiles files = files_of_run(config);
  options.sinks.push_back(monitor::readers_of_rank_0(
      files, {.progress = config.record.progress && !arguments.quiet, .json = arguments.json}));
  options.publish = [&](Report& report) { write_down(report, files, arguments); };
  Trainer trainer(world, options);
  const Report report = trainer.fit(training.job, training.train, training.test);
  if (world.worker() == 0 && !report.dismissed) tell(report, world, options.sinks, arguments);
  world.leave();
  const bool was_asked = report.stopped && report.stop_reason == kStoppedOnRequest;
  return was_asked ? kExitStopped : kExitOk;
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
