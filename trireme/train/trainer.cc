#include <ATen/Parallel.h>

#include <trireme/base/error.h>
#include <trireme/base/error_parts.h>
#include <trireme/base/log.h>
#include <trireme/base/unix_time.h>
#include <trireme/membership/arrival.h>
#include <trireme/parallel/engine.h>
#include <trireme/train/lost_peer.h>
#include <trireme/train/refuse.h>
#include <trireme/train/replica_device.h>
#include <trireme/train/replica_groups.h>
#include <trireme/train/replica_run.h>
#include <trireme/train/share_caches.h>
#include <trireme/train/stop_signal.h>
#include <trireme/train/trainer.h>
#include <trireme/train/trainer_facts.h>
#include <algorithm>
#include <chrono>
#include <exception>
#include <mutex>
#include <thread>

namespace trireme {
namespace {

constexpr int64_t kUsualEpochs = 10;

void check_elastic(const TrainerOptions& o, const membership::Elastic& elastic) {
  if (o.replicas > 1)
    refuse_option(fmt::format("{} replicas a worker in an elastic job", o.replicas),
                  "one replica in each worker");
  const StrategyFeatures can = find_strategy(o.strategy).features;
  if (!can.equal_replicas && !can.divides)
    refuse_option(fmt::format("strategy '{}' in an elastic job", o.strategy),
                  "a strategy whose replicas are equal after each step: otherwise no worker has "
                  "the whole state");
  if (o.micro_batch > 0)
    refuse_option(fmt::format("train.micro_batch of {} in an elastic job", o.micro_batch),
                  "data.batch and train.accumulate: the number of replicas changes");
  const int unit = unit_of(o);
  if (elastic.unit != unit)
    refuse_option(fmt::format("units of {} workers (--unit), where {} {} a copy of the model",
                              elastic.unit, unit, unit == 1 ? "worker has" : "workers have"),
                  unit == 1 ? "no --unit" : fmt::format("--unit {}", unit));
  if (o.checkpoint.memory_every > 0 && !can.divides)
    refuse_option(fmt::format("checkpoint.memory_every is {}, but under strategy '{}' each worker "
                              "has the whole state",
                              o.checkpoint.memory_every, o.strategy),
                  "checkpoint.memory_every=0");
  check_sizes(o, elastic.minimum, elastic.maximum);
  if (o.local.steps > 1)
    refuse_option(fmt::format("strategy.local_steps of {} in an elastic job", o.local.steps),
                  "1: between averagings no worker has the whole state");
}

// COLLECTIVE. The groups of each replica of this worker.
std::vector<ReplicaGroups> make_groups(World& world, const TrainerOptions& options) {
  std::vector<ReplicaGroups> groups;
  const Strategy strategy = find_strategy(options.strategy);
  const auto needs = strategy.needs
                         ? strategy.needs(options.division, world.workers() * options.replicas)
                         : EngineNeeds{};
  for (auto& group : world.make_groups(options.replicas)) groups.push_back({std::move(group)});
  const auto for_each = [&](auto&& made, auto member) {
    for (size_t i = 0; i < groups.size(); ++i) groups[i].*member = std::move(made[i]);
  };
  if (options.sync_batch_norm)
    for_each(world.make_groups(options.replicas), &ReplicaGroups::norms);
  if (needs.mesh) for_each(world.mesh(*needs.mesh, options.replicas), &ReplicaGroups::mesh);
  return groups;
}

// Holds the first error of several replicas. The errors of the others are its consequences.
class FirstError {
 public:
  void keep(std::exception_ptr error) {
    const std::lock_guard lock(mutex_);
    if (!error_) error_ = error;
  }
  void rethrow() const {
    if (error_) std::rethrow_exception(error_);
  }

 private:
  std::mutex mutex_;
  std::exception_ptr error_;
};

ReplicaResult run_to_the_end(const ReplicaSetting& setting, const ReplicaGroups& groups) {
  ReplicaRun run(setting);
  run.run(groups);
  return run.result();
}

std::vector<ReplicaResult> run_in_threads(const std::vector<ReplicaSetting>& settings,
                                          const std::vector<ReplicaGroups>& groups) {
  std::vector<ReplicaResult> results(settings.size());
  FirstError first_error;
  std::vector<std::thread> threads;
  for (size_t i = 0; i < settings.size(); ++i) {
    threads.emplace_back([&, i] {
      set_thread_rank(groups[i].all->rank(), groups[i].all->size());
      try {
        results[i] = run_to_the_end(settings[i], groups[i]);
      } catch (const std::exception& error) {
        first_error.keep(std::current_exception());
        groups[i].abort(parts_of(error).what);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  first_error.rethrow();
  return results;
}

// Runs one generation after the other. Each begins with the newest state that a member has in
// memory. A worker that is lost inside a step takes no state with it, because the others either
// abandon that step or have committed it.
std::optional<Report> run_through_generations(
    const ReplicaSetting& setting, std::map<std::string, std::string> terms,
    const std::function<Report(ReplicaResult)>& publish) {
  // The model is made before the workers meet, so that the others do not wait for this one's
  // start.
  ReplicaRun run(setting);
  World& world = setting.world;
  terms.merge(run.facts_of_model());
  world.set_terms(std::move(terms));
  // The number of generations in a row without a committed step.
  int in_vain = 0;
  int64_t before = -1;
  std::string reason;
  for (;;) {
    try {
      if (!world.regroup(run.committed(), reason)) return std::nullopt;
      reason.clear();
      const ReplicaGroups groups = make_groups(world, setting.options)[0];
      if (run.run(groups) == ReplicaRun::End::finished) {
        Report report = publish(run.result());
        groups.all->barrier();
        return report;
      }
    } catch (const std::exception& error) {
      if (dynamic_cast<const membership::NoGeneration*>(&error) || !is_of_lost_peer(error, world))
        throw;
      if (run.is_torn())
        throw Error(ErrorCode::peer_lost, "train",
                    fmt::format("step {} cannot be made again from the memory of this process: "
                                "its update was interrupted, or a part of the model is lost: {}",
                                run.committed() + 1, parts_of(error).what),
                    "nothing: another process continues from the newest checkpoint");
      reason = parts_of(error).what;  // Its remedy is for jobs that end.
      in_vain = run.committed() > before ? 0 : in_vain + 1;
      before = run.committed();
      if (in_vain == kGenerationsInVain) throw;
      log_warning("step {} abandoned: {}", run.committed() + 1, reason);
    }
    run.unbind();
  }
}

}  // namespace

Trainer::Trainer(World& world, TrainerOptions options)
    : world_(world), options_(std::move(options)) {
  check(options_);
  if (options_.epochs < 0) options_.epochs = kUsualEpochs;
  if (options_.threads == 0)
    options_.threads = options_.virtual_shards > 0 ? 1 : at::get_num_threads();
  options_.share_parameters = may_share_parameters(options_);
  const auto halves = {options_.dtype, options_.autocast.value_or(options_.dtype)};
  const bool has_float16 =
      std::find(halves.begin(), halves.end(), plan::DType::float16) != halves.end();
  if (has_float16 && !options_.loss_scaling) options_.loss_scaling.emplace();
  // The ranks of now need not all have virtual shards: an elastic job changes its size.
  TrainerOptions of_any_size = options_;
  if (world_.is_elastic()) of_any_size.virtual_shards = 0;
  const ResolvedStrategy resolved = resolve_strategy(of_any_size, world_.workers());
  options_.strategy = resolved.name;
  options_.replicas = resolved.replicas_per_worker;
  // Side tasks work on the CPU.
  for (int replica = 0; replica < options_.replicas && world_.worker() >= 0; ++replica)
    devices_.push_back(device_of_replica(options_, world_.identity(), replica));
  options_.batch = resolved.batch.global;
  options_.accumulate = static_cast<int>(resolved.batch.accumulate);
}

Report Trainer::fit(const Job& job, std::shared_ptr<const Source> train,
                    std::shared_ptr<const Source> test) {
  try {
    return run(job, std::move(train), std::move(test));
  } catch (...) {
    world_.send_events();  // No heartbeat may take them along any more.
    throw;
  }
}

Report Trainer::run(const Job& job, std::shared_ptr<const Source> train,
                    std::shared_ptr<const Source> test) {
  if (!train || train->size() == 0)
    refuse_option("the training set is empty", "a source with at least one sample");
  if (!job.model) refuse_option("the job has no model", "Job::model");
  if (job.tables && !find_strategy(options_.strategy).features.servers)
    refuse_option(fmt::format("the job has embedding tables for parameter servers, and strategy "
                              "'{}' uses none",
                              options_.strategy),
                  "strategy.name=parameter_server, or no Job::tables");
  check_evaluations(options_, job, test.get());
  if (world_.is_elastic()) check_elastic(options_, *world_.identity().elastic);
  if (!world_.is_elastic() && options_.resize.batch != "keep")
    refuse_option("elastic.batch scale in a job whose number of workers stays",
                  "trireme train ... --elastic MIN:MAX, or elastic.batch=keep");
  if (!world_.is_elastic() && options_.checkpoint.memory_every > 0)
    refuse_option(fmt::format("checkpoint.memory_every is {}, but a lost worker ends this job",
                              options_.checkpoint.memory_every),
                  "trireme train ... --elastic MIN:MAX, or checkpoint.memory_every=0");
  const auto started = std::chrono::steady_clock::now();
  const double began = options_.started_at;
  monitor::PssSampler pss;
  const StopSignal stop_signal;

  const auto facts = facts_of(options_, job, *train, test.get());
  std::vector<ReplicaSetting> settings;
  for (int i = 0; i < options_.replicas; ++i)
    settings.push_back({world_, options_, job, train, test, pss, settings.empty(),
                        devices_[static_cast<size_t>(i)]});
  const auto publish = [&](ReplicaResult result) {
    Report report = std::move(result.report);
    report.samples_per_second =
        result.train_seconds > 0 ? static_cast<double>(result.train_samples) / result.train_seconds
                                 : 0;
    report.wall_seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - started).count();
    if (began > 0) report.wall_seconds = unix_seconds() - began;
    if (result.rank == 0) report.cpu_seconds += world_.coordinator_cpu_seconds();
    report.cost = monitor::cost_of(options_.cost, report.cpu_seconds, report.wall_seconds,
                                   report.world_size);
    if (result.rank == 0 && options_.publish) options_.publish(report);
    return report;
  };
  if (world_.is_elastic()) {
    if (auto report = run_through_generations(settings[0], facts, publish))
      return *std::move(report);
    Report dismissed;
    dismissed.dismissed = true;
    return dismissed;
  }
  world_.set_phase(Phase::connecting);
  world_.connect(options_.replicas);
  world_.agree("configuration", facts);
  const auto caches = share_caches(world_, options_);
  const std::vector<ReplicaGroups> groups = make_groups(world_, options_);
  // A single replica runs on the caller's thread, so that its thread-local settings (grad mode,
  // device guards) apply.
  return publish(settings.size() == 1 ? run_to_the_end(settings[0], groups[0])
                                      : run_in_threads(settings, groups)[0]);
}

}  // namespace trireme
