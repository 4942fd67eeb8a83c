#include <ATen/core/Tensor.h>

#include <trireme/base/error.h>
#include <trireme/base/error_parts.h>
#include <trireme/base/log.h>
#include <trireme/base/unix_time.h>
#include <trireme/launch/arrival.h>
#include <trireme/parallel/compression/compressor.h>
#include <trireme/parallel/engine.h>
#include <trireme/parallel/local_sgd.h>
#include <trireme/plan/strategy.h>
#include <trireme/tensor/parameter_average.h>
#include <trireme/train/refuse.h>
#include <trireme/train/replica_run.h>
#include <trireme/train/stop_signal.h>
#include <trireme/train/trainer.h>
#include <trireme/train/trainer_facts.h>
#include <chrono>
#include <exception>
#include <mutex>
#include <thread>

namespace trireme {
namespace {

constexpr int kGenerationsInVain = 20;

bool is_half(at::ScalarType type) { return type == at::kHalf || type == at::kBFloat16; }

void check_precision(const TrainerOptions& o) {
  if (o.dtype != at::kFloat && o.dtype != at::kDouble && !is_half(o.dtype))
    refuse_option(fmt::format("train.dtype of {}", c10::toString(o.dtype)),
                  "float32, float64, bfloat16 or float16");
  if (!o.autocast) return;
  if (!is_half(*o.autocast))
    refuse_option(fmt::format("train.precision of {}", c10::toString(*o.autocast)),
                  "float32, bf16 or fp16");
  if (o.dtype != at::kFloat)
    refuse_option(fmt::format("train.precision of {} with train.dtype {}",
                              c10::toString(*o.autocast), c10::toString(o.dtype)),
                  "train.dtype=float32");
}

// Refuses options that make results depend on the number of replicas, whatever the order of sums.
void check_shards(const TrainerOptions& o) {
  if (o.virtual_shards < 0)
    refuse_option(fmt::format("{} virtual shards", o.virtual_shards), "0 (none) or more");
  if (o.virtual_shards == 0) return;
  const auto refuse_with = [&](const std::string& what) {
    refuse_option(
        fmt::format("{} virtual shards with {}: the result depends on the number of replicas",
                    o.virtual_shards, what),
        "one of them");
  };
  if (o.compression.name != "none") refuse_with("strategy.compression " + o.compression.name);
  if (o.local.steps > 1) refuse_with(fmt::format("strategy.local_steps of {}", o.local.steps));
  if (o.sync_batch_norm) refuse_with("strategy.sync_batch_norm");
}

void check_numbers(const TrainerOptions& o) {
  if (o.replicas < 1) refuse_option(fmt::format("{} replicas a worker", o.replicas), "at least 1");
  if (o.batch < 1) refuse_option(fmt::format("a global batch of {}", o.batch), "at least 1");
  if (o.steps < 0 && o.epochs < 0)
    refuse_option("neither epochs nor steps are given", "one of them");
  if (o.accumulate < 1)
    refuse_option(fmt::format("train.accumulate of {}", o.accumulate), "at least 1");
  if (o.clip_norm < 0)
    refuse_option(fmt::format("train.clip_norm of {}", o.clip_norm),
                  "0 (never) or a norm above it");
  if (o.checkpoint.keep < 1)
    refuse_option(fmt::format("checkpoint.keep of {}", o.checkpoint.keep), "at least 1");
  if (o.checkpoint.keep_every < 0)
    refuse_option(fmt::format("checkpoint.keep_every of {}", o.checkpoint.keep_every),
                  "0 or more");
  if (o.checkpoint.writers != "hosts" && o.checkpoint.writers != "ranks")
    refuse_option(fmt::format("checkpoint.writers '{}' is not known", o.checkpoint.writers),
                  "hosts or ranks");
  if (o.checkpoint.keep_best < 0)
    refuse_option(fmt::format("checkpoint.keep_best of {}", o.checkpoint.keep_best), "0 or more");
  if (o.ema_decay != 0) ParameterAverage(o.ema_decay, {});
  check(o.guard);
  check(o.rate_scaling);
  check(o.resize, o.batch);
  if (o.resize.batch == "scale" && o.virtual_shards > 0)
    refuse_option(
        fmt::format("elastic.batch scale with {} virtual shards: the result depends on the "
                    "number of workers",
                    o.virtual_shards),
        "one of them");
  check(o.compression);
  check(o.local);
  if (o.local.steps > 1 && (o.guard.spike > 0 || o.guard.check_replicas_every > 0))
    refuse_option(
        fmt::format("strategy.local_steps of {} with guard.spike or guard.check_replicas_every",
                    o.local.steps),
        "one of them: replicas differ between averagings");
  if (o.local.steps > 1 && o.compression.name != "none")
    refuse_option(fmt::format("strategy.local_steps of {} with strategy.compression {}",
                              o.local.steps, o.compression.name),
                  "one of them: local steps send no gradients that could be compressed");
  check_shards(o);
  check_precision(o);
  ScheduleOptions schedule = o.schedule;
  // It is set once the epoch's length is known.
  if (schedule.every_steps == 0 && o.schedule_every_epochs > 0) schedule.every_steps = 1;
  check(schedule);
  if (o.threads < 1) refuse_option(fmt::format("{} threads a replica", o.threads), "at least 1");
}

void check_elastic(const TrainerOptions& o) {
  if (o.replicas > 1)
    refuse_option(fmt::format("{} replicas a worker in an elastic job", o.replicas),
                  "one replica in each worker");
  if (!find_strategy(o.strategy).features.equal_replicas)
    refuse_option(fmt::format("strategy '{}' in an elastic job", o.strategy),
                  "a strategy whose replicas are equal after each step: otherwise no worker has "
                  "the whole state");
  if (o.local.steps > 1)
    refuse_option(fmt::format("strategy.local_steps of {} in an elastic job", o.local.steps),
                  "1: between averagings no worker has the whole state");
}

// Refuses options that the strategy cannot honour.
void check_features(const TrainerOptions& o) {
  const StrategyFeatures can = find_strategy(o.strategy).features;
  const auto refuse_unless = [&](bool has_it, bool wanted, const std::string& what) {
    if (wanted && !has_it)
      refuse_option(fmt::format("strategy '{}' with {}, which it does not have", o.strategy, what),
                    "the option's default, or another strategy");
  };
  const bool is_half_precision = is_half(o.dtype) || o.loss_scaling.has_value();
  refuse_unless(can.clip_norm, o.clip_norm > 0, fmt::format("train.clip_norm {}", o.clip_norm));
  refuse_unless(can.clip_norm, o.guard.spike > 0, fmt::format("guard.spike {}", o.guard.spike));
  refuse_unless(can.clip_norm, o.guard.policy != "stop", "guard.policy " + o.guard.policy);
  refuse_unless(can.compression, o.compression.name != "none",
                "strategy.compression " + o.compression.name);
  refuse_unless(can.local_steps, o.local.steps > 1,
                fmt::format("strategy.local_steps {}", o.local.steps));
  refuse_unless(can.virtual_shards, o.virtual_shards > 0,
                fmt::format("reproducible.virtual_shards {}", o.virtual_shards));
  refuse_unless(can.loss_scaling, is_half_precision,
                "train.dtype or train.precision of 16 bits, or loss scaling");
  refuse_unless(can.equal_replicas, o.guard.check_replicas_every > 0,
                fmt::format("guard.check_replicas_every {}", o.guard.check_replicas_every));
  refuse_unless(can.sync_batch_norm, o.sync_batch_norm, "strategy.sync_batch_norm");
}

struct Groups {
  // `norms` is for batch norms over all replicas, or null.
  std::shared_ptr<Group> group, norms;
};

std::vector<Groups> make_groups(World& world, const TrainerOptions& options) {
  std::vector<Groups> groups;
  for (auto& group : world.make_groups(options.replicas))
    groups.push_back({std::move(group), nullptr});
  if (!options.sync_batch_norm) return groups;
  auto norms = world.make_groups(options.replicas);
  for (size_t i = 0; i < groups.size(); ++i) groups[i].norms = std::move(norms[i]);
  return groups;
}

// Returns true if the worker must meet the others again after this error; otherwise the run ends.
bool is_of_lost_peer(const std::exception& error, const World& world) {
  const auto* const known = dynamic_cast<const Error*>(&error);
  if (known && (known->code() == ErrorCode::peer_lost || known->code() == ErrorCode::timeout ||
                known->code() == ErrorCode::aborted))
    return true;
  // No loss causes errors of these codes. All workers end with such an error, and the worker that
  // ended first already counts as lost.
  if (known && (known->code() == ErrorCode::internal || known->code() == ErrorCode::corrupt))
    return false;
  return world.lost_a_worker();
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

ReplicaResult run_to_the_end(const ReplicaSetting& setting, const Groups& groups) {
  ReplicaRun run(setting);
  run.run(groups.group, groups.norms);
  return run.result();
}

std::vector<ReplicaResult> run_in_threads(const std::vector<ReplicaSetting>& settings,
                                          const std::vector<Groups>& groups) {
  std::vector<ReplicaResult> results(settings.size());
  FirstError first_error;
  std::vector<std::thread> threads;
  for (size_t i = 0; i < settings.size(); ++i) {
    threads.emplace_back([&, i] {
      set_thread_rank(groups[i].group->rank(), groups[i].group->size());
      try {
        results[i] = run_to_the_end(settings[i], groups[i]);
      } catch (const std::exception& error) {
        first_error.keep(std::current_exception());
        const std::string reason = parts_of(error).what;
        groups[i].group->abort(reason);
        if (groups[i].norms) groups[i].norms->abort(reason);
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
      const Groups groups = make_groups(world, setting.options)[0];
      if (run.run(groups.group, groups.norms) == ReplicaRun::End::finished) {
        Report report = publish(run.result());
        groups.group->barrier();
        return report;
      }
    } catch (const std::exception& error) {
      if (dynamic_cast<const launch::NoGeneration*>(&error) || !is_of_lost_peer(error, world))
        throw;
      if (run.is_torn())
        throw Error(ErrorCode::peer_lost, "train",
                    fmt::format("step {} was interrupted inside its update, and a worker in it "
                                "neither ended nor continued: {}",
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
  check_numbers(options_);
  options_.strategy =
      plan::resolve_strategy(options_.strategy, world_.workers(), options_.replicas);
  if ((options_.dtype == at::kHalf || options_.autocast == at::kHalf) && !options_.loss_scaling)
    options_.loss_scaling.emplace();
  check_features(options_);
}

Report Trainer::fit(const Job& job, std::shared_ptr<const Source> train,
                    std::shared_ptr<const Source> test) {
  if (!train || train->size() == 0)
    refuse_option("the training set is empty", "a source with at least one sample");
  if (!job.model) refuse_option("the job has no model", "Job::model");
  const int world_size = world_.workers() * options_.replicas;
  if (options_.batch < world_size)
    refuse_option(fmt::format("a global batch of {} for {} replicas", options_.batch, world_size),
                  "a batch of at least one sample a replica");
  if (options_.virtual_shards > 0 && options_.virtual_shards < world_size && !world_.is_elastic())
    refuse_option(
        fmt::format("{} virtual shards for {} replicas: some would have nothing to compute",
                    options_.virtual_shards, world_size),
        fmt::format("reproducible.virtual_shards of at least {}", world_size));
  if (world_.is_elastic()) check_elastic(options_);
  if (world_.is_elastic() && world_.identity().elastic->unit > 1)
    refuse_option(fmt::format("units of {} workers (--unit)", world_.identity().elastic->unit),
                  "no --unit: each worker of the Trainer's strategies comes and goes by itself");
  if (!world_.is_elastic() && options_.resize.batch != "keep")
    refuse_option("elastic.batch scale in a job whose number of workers stays",
                  "trireme train ... --elastic MIN:MAX, or elastic.batch=keep");
  const auto started = std::chrono::steady_clock::now();
  const double began = options_.started_at;
  monitor::PssSampler pss;
  const StopSignal stop_signal;

  const auto facts = facts_of(options_, job, *train, test.get());
  std::vector<ReplicaSetting> settings;
  for (int i = 0; i < options_.replicas; ++i)
    settings.push_back({world_, options_, job, train, test, pss, settings.empty()});
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
  const std::vector<Groups> groups = make_groups(world_, options_);
  // A single replica runs on the caller's thread, so that its thread-local settings (grad mode,
  // device guards) apply.
  return publish(settings.size() == 1 ? run_to_the_end(settings[0], groups[0])
                                      : run_in_threads(settings, groups)[0]);
}

}  // namespace trireme
