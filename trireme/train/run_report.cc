#include <ATen/core/Tensor.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>

#include <trireme/base/unix_time.h>
#include <trireme/data/input_memory.h>
#include <trireme/train/data_facts.h>
#include <trireme/train/first_lines.h>
#include <trireme/train/input_report.h>
#include <trireme/train/parameter_hash.h>
#include <trireme/train/run_report.h>
#include <variant>
#include <vector>

namespace trireme {
namespace {

std::vector<int64_t> gather_numbers(Group& group, int64_t own) {
  const at::Tensor mine = at::full({1}, own, at::kLong),
                   all = at::zeros({group.size()}, at::kLong);
  group.all_gather(mine, all);
  const auto* const numbers = all.const_data_ptr<int64_t>();
  return {numbers, numbers + all.numel()};
}

}  // namespace

void RunReport::take(const monitor::Event& event) {
  std::visit([&](const auto& each) { read(each); }, event);
}

void RunReport::read(const monitor::StepRecord& step) {
  updated_elements_ = step.updated_elements;
  waited_ += step.waited;
  count_batch(step.samples, step.seconds, {step.operations, step.bytes_sent});
}

void RunReport::read(const monitor::SkipRecord& skip) {
  count_batch(skip.samples, skip.seconds, {skip.operations, skip.bytes_sent});
}

// A generation begins, or steps are taken back: those of the newest evaluation may be among them.
void RunReport::read(const monitor::ContinueRecord& from) {
  if (from.cause != "rollback") updated_elements_ = 0;
  evaluated_step_ = -1;
  if (from.cause.empty()) return;
  result_.report.checkpoint = from.checkpoint;
  if (from.cause == "resume") result_.report.resumed_from_step = from.step;
}

void RunReport::count_batch(int64_t samples, double seconds, const Traffic& exchanged) {
  exchanged_ = exchanged_ + exchanged;
  ++exchanges_;
  result_.train_seconds += seconds;
  result_.train_samples += samples;
  if (result_.report.seconds_to_first_step != 0) return;
  const double began = setting_.options.started_at;
  result_.report.seconds_to_first_step =
      began > 0
          ? unix_seconds() - began
          : std::chrono::duration<double>(std::chrono::steady_clock::now() - created_).count();
}

void RunReport::read(const monitor::EvalRecord& eval) {
  evaluated_step_ = eval.step;
  result_.report.eval = Evaluation{eval.loss, eval.accuracy, eval.samples, eval.metrics};
}

std::optional<Evaluation> RunReport::evaluation_of(int64_t step) const {
  return evaluated_step_ == step ? result_.report.eval : std::nullopt;
}

void RunReport::complete(const Progress& progress, const RunLength& length, Generation& generation,
                         const ReplicaModel& model, const Json& generation_facts) {
  Report& report = result_.report;
  Group& group = generation.group();
  add_counts(progress, length);
  report.parameters = model.parameters();
  report.world_size = group.size();
  report.loss_scale = generation.engine().loss_scale();
  report.plan_digest = generation.plan().digest();
  report.input_plan_digest =
      setting_.options.config.value(kInputPlan, Json::object()).value("digest", "");
  add_exchange();
  report.updated_elements = gather_numbers(group, updated_elements_);
  const Json of_engine = generation.engine().facts_for_report();
  report.mesh = of_engine.value("mesh", Json());
  report.bubble = of_engine.value("bubble", Json());
  report.parameter_server = of_engine.value("parameter_server", Json());
  report.parameters_sha256 = hash_of_parameters(generation.engine().state().tensors, group);
  add_memory(group, generation.engine().memory_use());
  report.train_loss = progress.mean_loss(generation.loader().batches_per_epoch());
  report.generations = generations(group, generation_facts);
  if (group.rank() == 0) report.times = setting_.world.times();
  add_process_totals(group);
  add_input(generation);
  result_.rank = group.rank();
}

void RunReport::add_evaluator(Group& group, const EvaluatorWatch& evaluator, bool user_wants_stop,
                              bool stopped_early) {
  Report& report = result_.report;
  constexpr int64_t kUser = 1, kEvaluator = 2, kChief = 4;
  const bool is_chief = setting_.leads_worker && setting_.world.identity().is_chief;
  int64_t chiefs = 0, wishes = 0;
  for (const int64_t of_rank : gather_numbers(
           group, (user_wants_stop ? kUser : 0) | (evaluator.wants_stop() ? kEvaluator : 0) |
                      (is_chief ? kChief : 0))) {
    wishes |= of_rank;
    if ((of_rank & kChief) != 0) ++chiefs;
  }
  report.roles = Json::object();
  if (chiefs > 0) report.roles["chief"] = chiefs;
  if (report.workers > chiefs) report.roles["worker"] = report.workers - chiefs;
  if (const int servers = setting_.options.ps.servers; servers > 0) report.roles["ps"] = servers;
  if (evaluator.has_evaluator()) report.roles["evaluator"] = 1;
  const bool by_evaluator = (wishes & kEvaluator) != 0 && (wishes & kUser) == 0;
  if (report.stopped) report.stop_reason = by_evaluator ? kStoppedByEvaluator : kStoppedOnRequest;
  if (report.stopped && stopped_early && (wishes & kUser) == 0) report.stop_reason = kStoppedEarly;
  report.evaluator = evaluator.found();
  if (report.evaluator.is_object()) {
    report.evaluator.erase("stop");
    report.evaluator["stopped_early"] = report.stopped && by_evaluator;
  }
}

// The facts of the run that need no communication.
void RunReport::add_counts(const Progress& progress, const RunLength& length) {
  Report& report = result_.report;
  const TrainerOptions& options = setting_.options;
  report.steps = progress.step;
  report.epochs = progress.position.epoch;
  report.strategy = options.strategy;
  report.workers = setting_.world.workers();
  report.stopped = progress.stopping && !length.is_done(progress);
  report.skipped_steps = progress.skipped_steps;
  report.samples = progress.ledger.samples();
  report.precision = precision_of(options);
  report.learning_rate_scale = rate_scale(options.rate_scaling, options.batch);
  report.compression = options.compression.name;
  report.local_steps = options.local.steps;
  report.loss_history = progress.loss_history;
}

void RunReport::add_exchange() {
  if (exchanges_ == 0) return;
  Report& report = result_.report;
  report.exchange_operations_per_step = static_cast<double>(exchanged_.operations) / exchanges_;
  report.exchange_bytes_per_step = static_cast<double>(exchanged_.bytes_sent) / exchanges_;
}

void RunReport::add_memory(Group& group, const MemoryUse& own) {
  Report& report = result_.report;
  report.activation_bytes = gather_numbers(group, own.activation_bytes);
  report.predicted_activation_bytes = gather_numbers(group, own.predicted_activation_bytes);
  report.parameter_bytes = gather_numbers(group, own.parameter_bytes);
}

// Adds sums over processes; one replica of each process reports for it.
void RunReport::add_process_totals(Group& group) {
  at::Tensor sums = at::zeros({2}, at::kDouble);
  if (setting_.leads_worker) {
    sums[0] = monitor::process_cpu_seconds();
    sums[1] = static_cast<double>(setting_.pss.peak());
  }
  group.all_reduce(sums);
  result_.report.cpu_seconds = sums[0].item<double>();
  const Json& servers = result_.report.parameter_server;
  if (servers.is_object()) result_.report.cpu_seconds += servers.at("cpu_seconds").get<double>();
  result_.report.peak_pss_bytes = static_cast<int64_t>(sums[1].item<double>());
}

// Replicas of one process share a source, whose stages count once.
void RunReport::add_input(Generation& generation) {
  const Loader& loader = generation.loader();
  result_.report.input = report_of_input(
      {.waited = waited_,
       .step_seconds = result_.train_seconds,
       .stages = loader.stage_use(),
       .tuning = loader.tuning(),
       .skipped = setting_.train->bad_records(),
       .skipped_in_test = setting_.test ? setting_.test->bad_records() : std::vector<int64_t>(),
       .counts_process = setting_.leads_worker,
       .cache = setting_.train->cache_use(),
       .advice = [&] { return setting_.train->cache_advice(); },
       .cache_bytes = data::memory_of_caches(data::input_memory(setting_.options.input_bytes)),
       .served = setting_.train->served()},
      generation.group());
}

// Returns the generations that the coordinator noted. A job that is not elastic has one.
Json RunReport::generations(const Group& group, const Json& facts) {
  World& world = setting_.world;
  if (world.is_elastic()) return world.generations();
  Json only = {{"generation", world.identity().generation},
               {"world_size", group.size()},
               {"first_step", result_.report.resumed_from_step + 1},
               {"cause", "start"},
               {"lost_ranks", Json::array()},
               {"phase", ""},
               {"seconds_to_first_step", result_.report.seconds_to_first_step}};
  only.update(facts);
  return Json::array({only});
}

}  // namespace trireme
