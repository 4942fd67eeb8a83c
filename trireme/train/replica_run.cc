#include <torch/torch.h>

#include <trireme/base/error.h>
#include <trireme/base/hash.h>
#include <trireme/base/log.h>
#include <trireme/tensor/replica_random.h>
#include <trireme/train/evaluate.h>
#include <trireme/train/replica_run.h>
#include <trireme/train/saver.h>
#include <trireme/train/stop_signal.h>
#include <chrono>
#include <cmath>

namespace trireme {
namespace {

using SteadyClock = std::chrono::steady_clock;

double seconds_since(SteadyClock::time_point start) { return std::chrono::duration<double>(SteadyClock::now() - start).count(); }
double unix_now() { return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count(); }

class ReplicaRun {
 public:
  explicit ReplicaRun(const ReplicaSetting& setting)
      : world_(setting.world),
        options_(setting.options),
        job_(setting.job),
        test_(setting.test),
        group_(setting.group),
        pss_(setting.pss),
        leads_worker_(setting.leads_worker),
        random_(mix64(setting.options.seed, uint64_t{0})),
        model_(make_model()),
        replica_(group_, model_.module, job_.optimizer, {options_.clip_norm, wants_norm(), options_.buckets}),
        loader_(setting.train, loader_options(), group_->rank(), group_->size()),
        saver_(options_.checkpoint.dir, options_.checkpoint.keep, {setting.train->size(), options_.seed, options_.batch, options_.config},
               *group_),
        context_{group_->rank(), group_->size(), *model_.module} {
    total_steps_ = options_.steps >= 0 ? options_.steps : options_.epochs * loader_.batches_per_epoch();
    fill_schedule();
    for (const auto& part : replica_.optimizer().param_groups()) base_rates_.push_back(part.options().get_lr());
  }

  ReplicaResult run() {
    resume();
    start();
    while (progress_.step < total_steps_ && !stopping_) step();
    finish();
    return std::move(result_);
  }

 private:
  bool first() const { return group_->rank() == 0; }
  bool wants_norm() const { return options_.clip_norm > 0; }
  void phase(Phase phase, int64_t step) {
    if (leads_worker_) world_.set_phase(phase, step);
  }
  void phase(Phase now) { phase(now, progress_.step); }           // Between steps: the last one committed.
  void step_phase(Phase now) { phase(now, progress_.step + 1); }  // Within the step under way; steps count from 1.

  // The same initial weights on every replica and under every strategy: drawn from the seed alone, then converted.
  Model make_model() {
    Model model = job_.model();
    if (!model.module || !model.forward)
      throw Error(ErrorCode::invalid_argument, "train", "the model factory gave no module or no forward function", "set both");
    model.module->to(options_.dtype);
    model.module->train();
    if (leads_worker_) world_.agree("model", facts_of(state_of(*model.module)));
    return model;
  }

  LoaderOptions loader_options() const {
    LoaderOptions loader;
    loader.batch = options_.batch;
    loader.seed = options_.seed;
    loader.shuffle = options_.shuffle;
    loader.drop_last = options_.drop_last;
    loader.threads = options_.loader_threads;
    loader.prefetch = options_.prefetch;
    loader.dtype = options_.dtype;
    return loader;
  }

  void fill_schedule() {
    schedule_ = options_.schedule;
    if (schedule_.total_steps == 0) schedule_.total_steps = total_steps_;
    if (schedule_.every_steps == 0) schedule_.every_steps = options_.schedule_every_epochs * loader_.batches_per_epoch();
    check(schedule_);
  }

  void resume() {
    phase(Phase::checkpoint);
    if (auto found = saver_.restore(replica_)) {
      progress_ = std::move(found->progress);
      loader_.seek(progress_.position);
      result_.report.resumed_from_step = progress_.step;
      result_.report.checkpoint = found->path;
      if (progress_.step > total_steps_ && first())
        log_warning("the checkpoint is at step {}, beyond the {} steps asked for: nothing is trained", progress_.step, total_steps_);
    }
  }

  void start() {
    monitor::RunStart start;
    start.name = job_.name;
    start.strategy = options_.strategy;
    start.workers = world_.workers();
    start.world_size = group_->size();
    start.total_steps = total_steps_;
    start.first_step = progress_.step;
    start.steps_per_epoch = loader_.batches_per_epoch();
    for (const auto& [name, tensor] : replica_.state().parameters) start.parameters += tensor.numel();
    result_.report.parameters = start.parameters;
    tell([&](monitor::Sink& sink) { sink.on_start(start); });
    call([&](Callback& callback) { callback.on_fit_start(context_); });
    if (total_steps_ == 0) save();  // Nothing to train: the initial weights are what was asked for.
  }

  void step() {
    const auto started = SteadyClock::now();
    random_.reseed(mix64(options_.seed, static_cast<uint64_t>(progress_.step + 1), static_cast<uint64_t>(group_->rank())));
    step_phase(Phase::data);
    const Batch batch = loader_.next();
    compute(batch);
    const double rate = set_rate();
    step_phase(Phase::exchange);
    if (context_.stop || StopSignal::requested()) replica_.request_stop();
    const StepOutcome outcome = replica_.step();
    require_finite(outcome);

    ++progress_.step;
    progress_.position = batch.next;
    progress_.loss_history.push_back(outcome.loss);
    const double seconds = seconds_since(started);
    result_.train_seconds += seconds;
    result_.train_samples += batch.global_size;
    if (result_.report.seconds_to_first_step == 0)
      result_.report.seconds_to_first_step = options_.started_at > 0 ? unix_now() - options_.started_at : seconds_since(created_);
    stopping_ = outcome.stop;
    announce(batch, outcome, rate, seconds);
    after_step(batch);
  }

  void compute(const Batch& batch) {
    for (int part = 0; part < options_.accumulate; ++part) {
      const auto [from, to] = plan::DataPlan::share(batch.size(), part, options_.accumulate);
      if (from == to) {
        replica_.backward({}, 0, batch.global_size);
        continue;
      }
      step_phase(Phase::forward);
      const bool whole = to - from == batch.size();
      const at::Tensor data = whole ? batch.data : batch.data.narrow(0, from, to - from);
      const at::Tensor target = whole ? batch.target : batch.target.narrow(0, from, to - from);
      const at::Tensor loss = loss_of(job_, model_.forward(data), target);
      step_phase(Phase::backward);
      replica_.backward(loss, to - from, batch.global_size);
    }
  }

  double set_rate() {
    const double factor = rate_factor(schedule_, progress_.step);
    auto& groups = replica_.optimizer().param_groups();
    for (size_t i = 0; i < groups.size(); ++i) groups[i].options().set_lr(base_rates_[i] * factor);
    return base_rates_.empty() ? 0 : base_rates_[0] * factor;
  }

  void require_finite(const StepOutcome& outcome) const {
    if (outcome.nonfinite_gradients)
      throw Error(ErrorCode::internal, "train",
                  fmt::format("the gradients of step {} are NaN or infinite; nothing was updated", progress_.step + 1),
                  "a smaller optimizer.lr, or a look at the data");
    if (outcome.nonfinite_ranks.empty()) return;
    std::string ranks;
    for (const int rank : outcome.nonfinite_ranks) ranks += fmt::format("{}{}", ranks.empty() ? "" : ", ", rank);
    throw Error(ErrorCode::internal, "train",
                fmt::format("the loss of step {} is NaN or infinite on rank {}; nothing was updated", progress_.step + 1, ranks),
                "a smaller optimizer.lr, train.clip_norm, or a look at the data");
  }

  void announce(const Batch& batch, const StepOutcome& outcome, double rate, double seconds) {
    const monitor::StepRecord record{progress_.step,        batch.position.epoch, outcome.loss, rate,
                                     outcome.gradient_norm, batch.global_size,    seconds};
    tell([&](monitor::Sink& sink) { sink.on_step(record); });
    call([&](Callback& callback) { callback.on_step(context_, record); });
  }

  void after_step(const Batch& batch) {
    const bool epoch_over = batch.next.epoch != batch.position.epoch;
    const bool last = progress_.step == total_steps_;
    if (epoch_over) {
      call([&](Callback& callback) { callback.on_epoch_end(context_, batch.position.epoch); });
      const bool due = options_.evaluate_every > 0 && batch.next.epoch % options_.evaluate_every == 0;
      if (due && !last && !stopping_) evaluate_now(batch.position.epoch);
    }
    const CheckpointOptions& every = options_.checkpoint;
    const bool by_step = every.every_steps > 0 && progress_.step % every.every_steps == 0;
    const bool by_epoch = epoch_over && every.every_epochs > 0 && batch.next.epoch % every.every_epochs == 0;
    if (by_step || by_epoch || last || stopping_) save();
  }

  void evaluate_now(int64_t epoch) {
    if (!test_) return;
    phase(Phase::evaluate);
    replica_.sync_buffers();
    result_.report.eval = evaluate(model_, job_, *test_, evaluation_batch(), options_.dtype, *group_);
    const monitor::EvalRecord record{progress_.step, epoch, result_.report.eval->loss, result_.report.eval->accuracy};
    tell([&](monitor::Sink& sink) { sink.on_eval(record); });
    call([&](Callback& callback) { callback.on_evaluate(context_, record); });
  }
  int64_t evaluation_batch() const { return std::max<int64_t>(1, std::min<int64_t>(options_.batch, 1024)); }

  void save() {
    if (options_.checkpoint.dir.empty()) return;
    phase(Phase::checkpoint);
    const std::string path = saver_.save(replica_, progress_);
    result_.report.checkpoint = path;
    if (path.empty()) return;
    tell([&](monitor::Sink& sink) { sink.on_message("checkpoint saved: " + path); });
    call([&](Callback& callback) { callback.on_checkpoint(context_, path); });
  }

  void finish() {
    Report& report = result_.report;
    // Who asks to stop is waiting; the checkpoint holds all that an evaluation needs.
    if (!stopping_) evaluate_now(std::max<int64_t>(0, progress_.position.epoch - (progress_.position.consumed == 0 ? 1 : 0)));
    call([&](Callback& callback) { callback.on_fit_end(context_); });
    phase(Phase::idle);
    report.steps = progress_.step;
    report.epochs = progress_.position.epoch;
    report.world_size = group_->size();
    report.strategy = options_.strategy;
    report.workers = world_.workers();
    report.stopped = stopping_ && progress_.step < total_steps_;
    report.parameters_sha256 = sha256_of(replica_.state().parameters);
    const auto tail = std::min<size_t>(progress_.loss_history.size(), std::max<int64_t>(1, loader_.batches_per_epoch()));
    for (size_t i = progress_.loss_history.size() - tail; i < progress_.loss_history.size(); ++i)
      report.train_loss += progress_.loss_history[i] / static_cast<double>(tail);
    report.loss_history = std::move(progress_.loss_history);
    add_process_totals(report);
    result_.rank = group_->rank();
  }

  // Sums over processes: one replica of each speaks for it.
  void add_process_totals(Report& report) {
    at::Tensor sums = at::zeros({2}, at::kDouble);
    if (leads_worker_) {
      sums[0] = monitor::process_cpu_seconds();
      sums[1] = static_cast<double>(pss_.peak());
    }
    group_->all_reduce(sums);
    report.cpu_seconds = sums[0].item<double>();
    report.peak_pss_bytes = static_cast<int64_t>(sums[1].item<double>());
  }

  template <typename Action>
  void tell(Action action) {
    if (!first()) return;
    for (const auto& sink : options_.sinks) action(*sink);
  }
  template <typename Action>
  void call(Action action) {
    for (const auto& callback : options_.callbacks) action(*callback);
  }

  World& world_;
  const TrainerOptions& options_;
  const Job& job_;
  std::shared_ptr<const Source> test_;
  std::shared_ptr<Group> group_;
  monitor::PssSampler& pss_;
  const bool leads_worker_;
  const SteadyClock::time_point created_ = SteadyClock::now();
  ReplicaRandom random_;  // Before the model, which is drawn from it.
  Model model_;
  DataParallel replica_;
  Loader loader_;
  Saver saver_;
  TrainContext context_;
  ScheduleOptions schedule_;
  std::vector<double> base_rates_;
  int64_t total_steps_ = 0;
  Progress progress_;
  bool stopping_ = false;
  ReplicaResult result_;
};

}  // namespace

ReplicaResult run_replica(const ReplicaSetting& setting) {
  at::set_num_threads(setting.options.threads);
  return ReplicaRun(setting).run();
}

}  // namespace trireme
