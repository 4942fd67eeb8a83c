// `trireme train`: checks everything that can be checked before a process starts. Then it becomes
// the worker, or supervises several workers.
#include <trireme/base/cores.h>
#include <trireme/base/error.h>
#include <trireme/base/files.h>
#include <trireme/base/log.h>
#include <trireme/base/unix_time.h>
#include <trireme/checkpoint/folder.h>
#include <trireme/checkpoint/folder_lock.h>
#include <trireme/cli/cache_by_worker.h>
#include <trireme/cli/commands.h>
#include <trireme/cli/config_keys.h>
#include <trireme/cli/expect_run.h>
#include <trireme/cli/fresh_start.h>
#include <trireme/cli/node_options.h>
#include <trireme/cli/output_file.h>
#include <trireme/cli/run_readers.h>
#include <trireme/cli/train_checks.h>
#include <trireme/config/print.h>
#include <trireme/data/kinds/mixture_set.h>
#include <trireme/data/kinds/record_set.h>
#include <trireme/data/pipeline/cache_store.h>
#include <trireme/faults/faults.h>
#include <trireme/launch/supervisor.h>
#include <trireme/launch/supervisor_options.h>
#include <trireme/membership/identity.h>
#include <trireme/membership/token_file.h>
#include <trireme/membership/units.h>
#include <trireme/net/shared_memory.h>
#include <trireme/run/data_service.h>
#include <trireme/run/dataset.h>
#include <trireme/run/places.h>
#include <trireme/train/evaluation_curve.h>
#include <trireme/train/expectations.h>
#include <trireme/watch/job_mark.h>
#include <unistd.h>
#include <algorithm>
#include <cstdlib>

namespace trireme::cli {
namespace {

// The resolved configuration instead of the file, which may be edited while the job runs.
// Replacements therefore get the same settings as the first workers.
std::vector<std::string> worker_arguments(const TrainArguments& arguments, const Config& config) {
  std::vector<std::string> words{"train"};
  for (const std::string& set : to_settings(config)) words.insert(words.end(), {"--set", set});
  if (!arguments.report.empty()) words.insert(words.end(), {"--report", arguments.report});
  if (arguments.quiet) words.push_back("--quiet");
  if (arguments.json) words.push_back("--json");
  return words;
}

void set_threads(const Config& config, const ResolvedStrategy& strategy, int local_workers) {
  const int replicas = local_workers * strategy.replicas_per_worker;
  const int threads =
      config.trainer.threads > 0 ? config.trainer.threads : std::max(1, usable_cores() / replicas);
  for (const char* name : {"OMP_NUM_THREADS", "MKL_NUM_THREADS"})
    setenv(name, std::to_string(threads).c_str(), 0);
}

// Servers keep the model, so a job with servers need not end with a worker.
void let_workers_come_and_go(TrainArguments& arguments, const Config& config, int workers) {
  if (arguments.elastic.empty() && config.trainer.ps.servers > 0)
    arguments.elastic = fmt::format("1:{}", workers);
}

// The tasks of a cluster find the numbers of an elastic job in their environment.
void hand_on_to_task(const membership::Elastic& elastic) {
  setenv("TRIREME_ELASTIC", fmt::format("{}:{}", elastic.minimum, elastic.maximum).c_str(), 1);
  setenv("TRIREME_UNIT", std::to_string(elastic.unit).c_str(), 1);
}

// The workers that have a copy of the model between them come and go together.
std::optional<membership::Elastic> elastic_in_units(const TrainArguments& arguments,
                                                    const Config& config) {
  if (arguments.elastic.empty()) return std::nullopt;
  membership::Elastic elastic = membership::parse_elastic(arguments.elastic, "--elastic");
  elastic.unit = unit_of(config.trainer);
  return elastic;
}

// All tasks have the configuration in common. Training goes on without an evaluator that fails
// again and again.
membership::Roles roles_of(const TrainArguments& arguments, const Config& config) {
  membership::Agreement agreement{{}, {membership::kWorkerRole}};
  const Json keys = keys_to_agree(config);
  for (const auto& [key, value] : keys.items()) agreement.facts.push_back(key);
  std::vector<membership::Role> roles;
  const auto add = [&](const std::string& name, int count, membership::OnLoss on_loss) {
    if (count > 0)
      roles.push_back(
          {.name = name, .count = count, .on_loss = on_loss, .must_agree = {agreement}});
    if (count > 0) roles.back().always_joins = name == membership::kEvaluatorRole;
  };
  add(membership::kServerRole, config.trainer.ps.servers,
      membership::usual_on_loss(membership::kServerRole));
  add(membership::kEvaluatorRole, arguments.evaluator ? 1 : 0,
      membership::OnLoss::replace_or_tell);
  return membership::Roles(std::move(roles));
}

// The memory of caches that the workers of this host share. It outlives a worker that is lost.
std::optional<data::HostCaches> caches_for(const Config& config) {
  const int caches = data::caches_in_memory(config.data);
  if (caches == 0 || config.data.cache_bytes == 0) return std::nullopt;
  return data::HostCaches(caches, data::most_in_memory(config.data));
}

int supervise_workers(const TrainArguments& arguments, const Config& config,
                      const ResolvedStrategy& strategy) {
  launch::SupervisorOptions options;
  arguments.node.apply(options);
  options.workers = strategy.workers;
  options.elastic = elastic_in_units(arguments, config);
  options.roles = roles_of(arguments, config);
  options.has_chief = arguments.chief;
  // An elastic job continues after a wrong alarm, so it need not wait long.
  if (options.elastic) options.heartbeat_timeout = Milliseconds(2000);
  if (config.world.heartbeat_timeout > Milliseconds(0))
    options.heartbeat_timeout = config.world.heartbeat_timeout;
  static_cast<launch::Patience&>(options) = config.patience;
  options.straggler.factor = config.world.straggler_factor;
  LauncherReaders readers(
      config.record.json_lines ? std::filesystem::path(config.record.dir) / "log.jsonl" : "",
      config.record.progress && !arguments.quiet && !arguments.json);
  options.on_notice = [&readers](const Json& record) {
    readers.take({.time = unix_seconds(), .event = monitor::NoticeRecord{record}});
  };
  options.on_event = [&readers](const monitor::Told& told) { readers.take(told); };
  options.join_timeout = config.world.timeout;
  if ((options.nodes == 1 || options.etcd) && !config.world.interface.empty())
    options.rendezvous.host = net::address_of_interface(config.world.interface);
  options.command = torch_command("trireme-worker", config.library);
  for (std::string& word : worker_arguments(arguments, config))
    options.command.push_back(std::move(word));
  set_threads(config, strategy, std::max(1, options.workers / options.nodes));
  // The report must stay JSON; rank 0 itself then writes the progress to standard error.
  options.prefix_output = !arguments.json;
  if (readers.draws_progress()) options.environment.emplace_back("TRIREME_PROGRESS", "launcher");
  const std::optional<data::HostCaches> caches = caches_for(config);
  if (caches) options.environment.emplace_back(data::kCacheVariable, caches->variable());
  return launch::supervise(options);
}

// Checks before a process starts that the model takes the data, and that the batches fit. Returns
// the number of steps of the run. `most` is the largest number of workers that it may have; 0: the
// number stays.
int64_t check_model_and_data(const Config& config, const ResolvedStrategy& strategy, int most) {
  // Only the workers can open the shared object. They check before they connect.
  if (!config.library.empty()) return std::max<int64_t>(0, config.trainer.steps);
  const Dataset data = read_data(config);
  require_one_length(config, data, strategy.batch);
  // Other numbers of workers have at most as many samples at once as that for which the batch was
  // chosen.
  if (const int chosen = config.trainer.resize.workers;
      most > 0 && chosen > 0 && chosen < strategy.world_size)
    require_one_length(config, data, resolve_strategy(config.trainer, chosen).batch);
  models::parameter_shapes(model_for(config, data), data.input);
  check_data_service(config, data);
  const plan::DataPlan plan = data_plan_of(config, data);
  if (most > 0 && config.trainer.resize.batch == "scale") {
    plan::DataPlanOptions largest = plan.options();
    largest.batch = config.trainer.batch / config.trainer.resize.workers * most;
    plan::DataPlan{largest};
  }
  return config.trainer.steps >= 0 ? config.trainer.steps
                                   : config.trainer.epochs * plan.batches_per_epoch();
}

// Trains the undisturbed reference of a disturbed run, with the same arguments except for `set`.
int train_reference(TrainArguments arguments, const Config& disturbed,
                    const std::vector<std::string>& set) {
  arguments.source = {{}, to_settings(disturbed)};
  arguments.source.set.insert(arguments.source.set.end(), set.begin(), set.end());
  arguments.report.clear();
  arguments.elastic.clear();
  arguments.evaluator = false;
  arguments.quiet = true;
  arguments.json = false;
  const Config config = load_config(arguments.source);
  let_workers_come_and_go(arguments, config, arguments.workers.value_or(1));
  require_writable_folder(checkpoint_dir(config));
  return supervise_workers(arguments, config,
                           check_with_workers(config, arguments.workers.value_or(1)));
}

int run_and_judge(TrainArguments arguments, const Config& config,
                  const ResolvedStrategy& strategy) {
  const int code = supervise_workers(arguments, config, strategy);
  if (code != kExitOk) {
    fmt::print(stderr, "trireme: the run ended with exit code {}; --expect was not checked\n",
               code);
    return code;
  }
  std::vector<std::string> reports;
  if (!arguments.report.empty()) reports.push_back(arguments.report);
  arguments.workers = strategy.workers;
  return judge_expectations(
      {config, reports, [&](const auto& set) { return train_reference(arguments, config, set); }});
}

// The mark of the job that this launcher is about to start or to join.
watch::JobMark mark_of(const TrainArguments& arguments) {
  launch::SupervisorOptions options;
  arguments.node.apply(options);
  return launch::mark_of_job(options, launch::token_of_job(options, Environment::of_process()));
}  // Makes way in the folder of checkpoints, and proves that what the run writes can be written.
void prepare_folders(const TrainArguments& arguments, const Config& config, bool launched) {
  // Launchers of other nodes may come when the job that this one began holds the folder. Without
  // etcd a member that this one finds there is left over, and ends as it has no coordinator.
  const bool begins_anew = arguments.fresh && !launched && arguments.node.node == 0;
  const auto use = checkpoint::make_way(
      checkpoint_dir(config), launched ? watch::JobMark::of_this_process() : mark_of(arguments),
      config.patience.stop_grace, begins_anew && !net::is_etcd_url(arguments.node.rendezvous));
  if (arguments.fresh && !use.by_own_job)
    move_run_aside(config);
  else if (begins_anew)
    log_warning("--fresh: the checkpoints in {} stay, because a process of the same job uses them",
                checkpoint_dir(config));
  require_writable_folder(checkpoint_dir(config));
  if (!arguments.report.empty())
    require_writable_folder(std::filesystem::path(arguments.report).parent_path());
}

int train(TrainArguments arguments) {
  if (arguments.keys) {
    fmt::print("{}", config::describe(table_of_config()));
    return kExitOk;
  }
  setenv("TRIREME_STARTED", fmt::format("{:.6f}", unix_seconds()).c_str(), 0);
  if (!arguments.inject.empty())
    arguments.source.options.emplace_back("--inject", "inject.faults=" + arguments.inject);
  if (!arguments.expect.empty())
    arguments.source.options.emplace_back("--expect", "inject.expect=" + arguments.expect);
  const membership::Identity identity = membership::resolve_identity(Environment::of_process());
  check_number_of_servers(arguments);
  take_servers_of_cluster(arguments, identity);
  if (arguments.ps)
    arguments.source.options.emplace_back("--ps", fmt::format("ps.servers={}", *arguments.ps));
  Config config = load_config(arguments.source);
  const bool launched = identity.launcher != membership::Launcher::alone;
  if (!launched) membership::TokenFile::clear_abandoned(Environment::of_process());
  if (arguments.workers) require_workers(*arguments.workers);
  if (arguments.elastic.empty() && identity.elastic && membership::is_cluster(identity.launcher))
    arguments.elastic = fmt::format("{}:{}", identity.elastic->minimum, identity.elastic->maximum);
  if (!launched)
    let_workers_come_and_go(arguments, config, arguments.workers.value_or(1));
  else if (membership::is_cluster(identity.launcher))
    let_workers_come_and_go(arguments, config, identity.workers);
  const std::optional<membership::Elastic> elastic = elastic_in_units(arguments, config);
  check_launch(arguments, config, identity, elastic);
  check_evaluator(arguments, config, launched);
  const int workers =
      launched ? identity.workers : arguments.workers.value_or(elastic ? elastic->maximum : 1);
  if (elastic && config.trainer.resize.workers == 0) {  // Workers that join later get it too.
    std::vector<std::string> settings = to_settings(config);
    settings.push_back(fmt::format("elastic.workers={}", workers));
    config = load_config({{}, settings});
  }
  if (elastic) check_units(config, *elastic, workers);
  const ResolvedStrategy strategy = check_with_workers(config, workers);
  check_carrier(config, strategy, launched);
  const bool expects = !parse_expectations(config.expect).empty();
  if (expects && (launched || arguments.node.nodes > 1))
    throw Error(ErrorCode::invalid_argument, "cli",
                "--expect with several launchers: none of them sees the whole job",
                "trireme train --workers N on one host, or trireme data audit afterwards");
  // The faults are drawn once. Their ranks must not depend on a later number of workers.
  const std::vector<Fault> faults =
      schedule_faults(config.trainer.inject.faults, strategy.world_size);
  if (!faults.empty()) config.trainer.inject.faults = faults;
  torch_command("trireme-worker",
                config.library);  // It refuses a wrong LibTorch before a folder is made.
  config.record.dir = make_run_dir(config);
  if (!launched || identity.worker == 0) {
    // The other workers of a launched job would wait for the answer.
    require_place_of("--report", arguments.report, {config.record.dir, checkpoint_dir(config)},
                     launched ? +[](const std::string&) { return false; } : ask_in_terminal);
    schedule_faults(faults, strategy.world_size,
                    check_model_and_data(config, strategy, elastic ? elastic->maximum : 0));
    // Samples that cannot be loaded end the run here, before a folder is changed. The workers of
    // another launcher choose together, when they have met, and so behind this.
    if (!launched)
      if (const int code = place_cache_by_worker(config, arguments.quiet); code != kExitOk)
        return code;
    // In an elastic job of a cluster this may be a lost task that joins the others again, which
    // use the folder. The worker that becomes rank 0 finds out whether another job does.
    if (elastic && launched)
      require_writable_folder(checkpoint_dir(config));
    else
      prepare_folders(arguments, config, launched);
  }
  if (expects) return run_and_judge(arguments, config, strategy);
  const bool has_roles = arguments.chief || arguments.evaluator;
  if (!launched && (workers > 1 || arguments.node.nodes > 1 || elastic || has_roles))
    return supervise_workers(arguments, config, strategy);
  if (elastic) hand_on_to_task(*elastic);
  set_threads(config, strategy, launched ? std::max(1, identity.local_workers) : 1);
  become("trireme-worker", config.library, worker_arguments(arguments, config));
}

}  // namespace

void add_train(Command app) {
  auto arguments = std::make_shared<TrainArguments>();
  Command command = app.subcommand("train", "Train the model that a configuration describes");
  command.option("config", arguments->source.file,
                 "YAML file; without it all keys have their defaults");
  command.repeated("--set", arguments->source.set, "key=value, after the file; may be repeated");
  command.settings(key_meant_by);
  command.option("--workers", arguments->workers, "Worker processes (strategy multi_worker)");
  command.option("--ps", arguments->ps,
                 "Parameter servers, which are processes of their own (strategy "
                 "parameter_server)");
  command.flag("--chief", arguments->chief,
               "Worker 0 is the chief (TRIREME_ROLE); it is one of the --workers");
  command.flag("--evaluator", arguments->evaluator,
               "A process beside the workers evaluates each checkpoint, keeps the best, and may "
               "stop the run (evaluator.patience)");
  command.option("--elastic", arguments->elastic,
                 "MIN:MAX: lost workers are replaced while the others continue; "
                 "`trireme scale N` changes their number");
  command.option("--report", arguments->report,
                 "Write the report (JSON) to this file as well, in a folder that is there");
  command.option("--inject", arguments->inject,
                 "Faults to inject, such as \"kill:rank=1@step=40; "
                 "stop:rank=0@step=60,for=3s\" (docs/faults.md)");
  command.option("--expect", arguments->expect,
                 "Check at the end: same-loss (as in a run without faults, which is trained "
                 "too), exactly-once");
  command.flag("--fresh", arguments->fresh,
               "Start from the beginning; existing checkpoints are moved aside");
  command.flag("--quiet", arguments->quiet, "No progress and no summary");
  command.flag("--json", arguments->json,
               "Print the report as JSON at the end, and nothing else on standard output");
  command.flag("--keys", arguments->keys, "List every configuration key and end");
  arguments->node.add_to(command);
  command.examples(
      {"trireme train examples/digits.yaml --workers 2 --set optimizer.lr=0.05",
       "trireme train examples/digits.yaml --set run.dir=runs/first --report report.json"});
  command.action([arguments] { return train(*arguments); });
}

}  // namespace trireme::cli
