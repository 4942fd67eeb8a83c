#include <trireme/cli/train_checks.h>

#include <fmt/format.h>

#include <trireme/base/error.h>
#include <trireme/base/log.h>
#include <trireme/membership/units.h>

namespace trireme::cli {

// Refuses --ps beside another number in --set. A number in the file is what --ps replaces.
void check_number_of_servers(const TrainArguments& arguments) {
  const std::string key = "ps.servers=";
  for (const std::string& setting : arguments.source.set)
    if (arguments.ps && setting.starts_with(key) &&
        setting.substr(key.size()) != std::to_string(*arguments.ps))
      throw Error(ErrorCode::invalid_argument, "cli",
                  fmt::format("--ps {}, and --set {}", *arguments.ps, setting),
                  "--ps alone: it starts the servers, and sets ps.servers");
}

// The environment may name the servers of the job (TF_CONFIG, DMLC).
void take_servers_of_cluster(TrainArguments& arguments, const membership::Identity& identity) {
  const membership::Role* const servers = identity.roles.find(membership::kServerRole);
  const int count = servers ? servers->count : 0;
  if (identity.roles.empty() || arguments.ps.value_or(count) == count) {
    if (count > 0) arguments.ps = count;
    return;
  }
  throw Error(ErrorCode::invalid_argument, "cli",
              fmt::format("--ps {}, but the environment names {} servers", *arguments.ps, count),
              fmt::format("--ps {}, or no --ps", count));
}

// Throws if the arguments do not fit the launcher that started this process, or each other.
void check_launch(const TrainArguments& arguments, const Config& config,
                  const membership::Identity& identity,
                  const std::optional<membership::Elastic>& elastic) {
  const bool launched = identity.launcher != membership::Launcher::alone;
  if (launched && arguments.workers && *arguments.workers != identity.workers)
    throw Error(ErrorCode::invalid_argument, "cli",
                fmt::format("--workers {} contradicts the launcher, which started {}",
                            *arguments.workers, identity.workers),
                "leave --workers to the launcher");
  const bool in_cluster = membership::is_cluster(identity.launcher);
  if (elastic && launched && !in_cluster)
    throw Error(ErrorCode::invalid_argument, "cli",
                "--elastic under another launcher: workers are replaced by trireme train itself",
                "trireme train ... --elastic, started by itself or by a cluster (docs/roles.md)");
  if (elastic && in_cluster && elastic->maximum != identity.workers)
    throw Error(ErrorCode::invalid_argument, "cli",
                fmt::format("--elastic {}:{}, but the cluster has {} workers", elastic->minimum,
                            elastic->maximum, identity.workers),
                fmt::format("--elastic MIN:{}, the same for every task", identity.workers));
  // A cluster starts the same command again when its task is lost.
  if (arguments.fresh && in_cluster)
    throw Error(
        ErrorCode::invalid_argument, "cli",
        "--fresh in a job of a cluster: it would move the checkpoints aside each time that "
        "the cluster starts a lost task again",
        "another run.dir for a new run, or no --fresh");
  if (elastic && in_cluster && config.record.dir.empty())
    throw Error(
        ErrorCode::invalid_argument, "cli",
        "an elastic job of a cluster without run.dir: when another task becomes rank 0, it "
        "would write to another folder",
        "--set run.dir=FOLDER, the same for every task");
  const bool can_regroup = config.world.backend == "auto" || config.world.backend == "shm" ||
                           config.world.backend == "tcp";
  if (elastic && !can_regroup)
    throw Error(ErrorCode::unsupported, "cli",
                fmt::format("--elastic with comm.backend {}, which cannot continue after a worker "
                            "is lost",
                            config.world.backend),
                "comm.backend=auto, shm or tcp");
  if (!elastic && !launched && config.trainer.resize.batch != "keep")
    throw Error(ErrorCode::invalid_argument, "cli",
                fmt::format("elastic.batch is {}, but the number of workers stays",
                            config.trainer.resize.batch),
                "trireme train ... --elastic MIN:MAX, or elastic.batch=keep");
}

// The evaluator of a job that something else starts is a task like the others.
void check_evaluator(const TrainArguments& arguments, const Config& config, bool launched) {
  const auto refuse = [](const std::string& what, const std::string& remedy) {
    throw Error(ErrorCode::invalid_argument, "cli", what, remedy);
  };
  for (const auto& [is_given, option] :
       {std::pair{arguments.chief, "--chief"}, {arguments.evaluator, "--evaluator"}})
    if (is_given && launched)
      refuse(fmt::format("{} under another launcher, which gives each process its role", option),
             fmt::format("no {}, and a process with that role (docs/roles.md)", option));
  const EvaluatorOptions& evaluator = config.trainer.evaluator;
  if (!arguments.evaluator) {
    if (evaluator.patience > 0 && !launched)
      refuse(fmt::format("evaluator.patience is {}, but the job has no evaluator",
                         evaluator.patience),
             "--evaluator, or evaluator.patience=0");
    return;
  }
  const CheckpointOptions& checkpoint = config.trainer.checkpoint;
  if (checkpoint.every_steps == 0 && checkpoint.every_epochs == 0)
    refuse("checkpoint.every is never, so --evaluator would find no checkpoint before the end",
           "checkpoint.every=\"100 steps\" or \"1 epochs\"");
}

void check_units(const Config& config, const membership::Elastic& elastic, int workers) {
  const plan::MeshOptions& mesh = config.trainer.division.mesh;
  membership::check_units(
      elastic.unit, fmt::format("mesh.pipeline {} x mesh.tensor {}", mesh.pipeline, mesh.tensor),
      elastic.minimum, elastic.maximum, workers);
  check_sizes(config.trainer, elastic.minimum, elastic.maximum);
}

void check_carrier(const Config& config, const ResolvedStrategy& strategy, bool launched) {
  const bool runs_no_plans = config.world.backend == "gloo" || config.world.backend == "mpi";
  if (strategy.workers > 1 && strategy.replicas_per_worker == 1 && runs_no_plans &&
      config.world.all_reduce != "auto")
    log_warning(
        "strategy.all_reduce={} is for threads, shm and tcp; comm.backend {} sums by an algorithm "
        "of its own",
        config.world.all_reduce, config.world.backend);
  if (!launched && strategy.workers > 1 && config.world.backend == "mpi")
    throw Error(
        ErrorCode::invalid_argument, "cli",
        "comm.backend is mpi, which joins workers that mpirun starts",
        fmt::format("mpirun -n {} trireme train ..., without --workers", strategy.workers));
}

}  // namespace trireme::cli
