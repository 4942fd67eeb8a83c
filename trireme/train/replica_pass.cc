#include <trireme/base/hash.h>
#include <trireme/comm/dtype.h>
#include <trireme/tensor/autocast.h>
#include <trireme/train/input_report.h>
#include <trireme/train/replica_check.h>
#include <trireme/train/replica_run_impl.h>
#include <algorithm>
#include <chrono>

namespace trireme {

// One pass over a global batch: a step, or a batch that is skipped, or the way back to a
// checkpoint.
void ReplicaRun::Impl::pass() {
  const auto started = std::chrono::steady_clock::now();
  Pass pass = train_on_next_batch();
  step_phase(Phase::optimizer);
  GuardVerdict verdict;
  if (!pass.is_empty()) verdict = judge(pass);
  if (verdict.action == GuardAction::stop) throw verdict.error();
  if (verdict.action == GuardAction::rollback) return roll_back(verdict.reason);

  commit(pass);
  pass.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - started).count();
  progress_.stopping = pass.outcome.stop;
  if (++generation_->batches == 1) world_.tell_first_step(progress_.step, facts_of_generation());
  announce(pass, verdict.reason);
  if (!pass.outcome.updated || !replicas_differed()) after_pass(pass);
  keep_copies(pass);
  announce_tuning();
  if (pass.outcome.regroup && !is_over()) standing_.enter(Standing::regrouping);
}

ReplicaRun::Impl::Pass ReplicaRun::Impl::train_on_next_batch() {
  if (world_.is_elastic()) model_.remember_buffers();
  standing_.enter(Standing::in_step);
  model_.random().reseed(mix64(options_.seed, static_cast<uint64_t>(progress_.step + 1),
                               static_cast<uint64_t>(group().rank())));
  step_phase(Phase::data);
  const double waited_before = generation_->loader().seconds_waited();
  Pass pass{.batch = generation_->loader().next()};
  pass.waited = generation_->loader().seconds_waited() - waited_before;
  if (setting_.train->leaves_out()) {
    bool wants_stop = user_wants_stop();
    count_left_out(pass.batch, engine().data_share().count, wants_stop, group());
    empty_batches_.take(pass.batch, generation_->loader().plan());
    pass.outcome.stop = wants_stop;
  }
  const double factor = course_->factor(progress_, resize_);
  engine().set_rates(course_->rates(factor));
  pass.rate = course_->base_rate() * factor;
  if (!pass.is_empty())
    pass.outcome = engine().step({pass.batch, progress_.step + 1, generation_->passes});
  standing_.enter(Standing::between_steps);
  return pass;
}

GuardVerdict ReplicaRun::Impl::judge(const Pass& pass) {
  const StepOutcome& outcome = pass.outcome;
  return guard_.judge({progress_.step + 1, pass.batch.position, outcome.loss,
                       outcome.gradient_norm, outcome.nonfinite_ranks, outcome.nonfinite_gradients,
                       options_.loss_scaling.has_value()});
}

// A batch without an update is no step, but its data is used.
void ReplicaRun::Impl::commit(const Pass& pass) {
  progress_.count(pass.batch.next, pass.outcome.updated, pass.outcome.loss);
  if (pass.outcome.updated && model_.average()) model_.average()->update();
  phase(Phase::callbacks);
  record(pass);
}

void ReplicaRun::Impl::record(const Pass& pass) {
  const monitor::CommitRecord commit{world_.identity().generation,
                                     progress_.step,
                                     pass.batch.position,
                                     pass.batch.global_used,
                                     generation_->shares_of(pass.batch.global_used),
                                     pass.outcome.updated,
                                     pass.batch.global_used - pass.batch.global_size};
  progress_.ledger.commit(commit);
  listeners_.tell(commit);
}

void ReplicaRun::Impl::announce(const Pass& pass, const std::string& guarded) {
  if (pass.outcome.updated) return listeners_.stepped(step_record_of(pass));
  if (pass.is_empty())
    listeners_.tell(monitor::Message{
        fmt::format("all {} samples of a batch were left out", pass.batch.global_used)});
  else if (guarded.empty())
    listeners_.tell(monitor::Message{fmt::format(
        "gradients overflowed: step skipped, loss scale now {:g}", engine().loss_scale())});
  else
    listeners_.tell(monitor::GuardRecord{progress_.step, "skip", guarded});
  listeners_.tell(skip_record_of(pass));
}

monitor::StepRecord ReplicaRun::Impl::step_record_of(const Pass& pass) const {
  const StepOutcome& outcome = pass.outcome;
  return {.step = progress_.step,
          .epoch = pass.batch.position.epoch,
          .loss = outcome.loss,
          .learning_rate = pass.rate,
          .gradient_norm = outcome.gradient_norm,
          .samples = pass.batch.global_size,
          .seconds = pass.seconds,
          .operations = outcome.operations,
          .bytes_sent = outcome.bytes_sent,
          .updated_elements = outcome.updated_elements,
          .waited = pass.waited};
}

monitor::SkipRecord ReplicaRun::Impl::skip_record_of(const Pass& pass) const {
  return {progress_.step, pass.batch.global_size, pass.seconds, pass.outcome.operations,
          pass.outcome.bytes_sent};
}

// Compares the replicas every check_replicas_every steps. Returns true if they differed and all
// have returned to the newest checkpoint.
bool ReplicaRun::Impl::replicas_differed() {
  const int64_t every = options_.guard.check_replicas_every;
  const bool have_one_copy = engine().shares_parameters() && group().hosts() == 1;
  if (every == 0 || progress_.step % every != 0 || have_one_copy) return false;
  const std::string difference = differing_replicas(generation_->updated_parameters(), group());
  if (difference.empty()) return false;
  const std::string what = fmt::format("after step {} {}", progress_.step, difference);
  if (!guard_.may_go_back_as_replicas_differ())
    throw Error(ErrorCode::corrupt, "train", what,
                "guard.policy=rollback, and a look at the memory of that rank's host");
  roll_back(what);
  return true;
}

void ReplicaRun::Impl::after_pass(const Pass& pass) {
  const Batch& batch = pass.batch;
  const bool epoch_over = batch.next.epoch != batch.position.epoch;
  const bool last = is_done();
  if (epoch_over) {
    listeners_.epoch_ended(batch.position.epoch);
    const bool due =
        options_.evaluate_every > 0 && batch.next.epoch % options_.evaluate_every == 0;
    if (due && !last && !progress_.stopping) evaluate_now(batch.position.epoch);
  }
  const CheckpointOptions& every = options_.checkpoint;
  const bool by_step =
      pass.outcome.updated && every.every_steps > 0 && progress_.step % every.every_steps == 0;
  const bool by_epoch =
      epoch_over && every.every_epochs > 0 && batch.next.epoch % every.every_epochs == 0;
  if (last || progress_.stopping)
    save_at_the_end();
  else if (by_step || by_epoch)
    save();
  announce_saved();
}

EvaluationReads ReplicaRun::Impl::evaluation_reads() {
  EvaluationReads reads{evaluation_batch(options_.batch), to_torch(options_.dtype),
                        generation_->loader().beside()};
  // A loader at its own pace has no threads.
  if (options_.loader_threads != 0) reads.ahead.threads = std::max(1, reads.ahead.threads);
  return reads;
}

void ReplicaRun::Impl::evaluate_now(int64_t epoch) {
  if (!setting_.test) return;
  phase(Phase::evaluate);
  engine().prepare_to_evaluate();
  const ParameterAverage::InUse averages(model_.average());
  const Autocast mixed(to_torch(options_.autocast));
  const Evaluation evaluation = evaluate(engine(), model_.model(), setting_.job, *setting_.test,
                                         evaluation_reads(), group());
  const monitor::EvalRecord found{progress_.step,     epoch,
                                  evaluation.loss,    evaluation.accuracy,
                                  evaluation.samples, evaluation.metrics};
  listeners_.evaluated(found);
  early_stop_.take(found);
  progress_.early_stop = early_stop_.state();
  if (early_stop_.wants_stop() && !is_done()) progress_.stopping = true;
}

void ReplicaRun::Impl::save() {
  if (!checkpoints_.wanted()) return;
  // A callback may have written parameters, which the next step would refuse.
  engine().check_parameters();
  phase(Phase::checkpoint);
  Saver& saver = checkpoints_.saver();
  const auto mark = saver.writes() ? world_.mark_save(progress_.step) : nullptr;
  strike(Phase::checkpoint, progress_.step);
  progress_.guard = guard_.state();
  engine().prepare_to_read();
  Json evaluation;
  if (const auto eval = report_.evaluation_of(progress_.step))
    evaluation = {{"loss", eval->loss}, {"accuracy", eval->accuracy}, {"metrics", eval->metrics}};
  const EngineState state = whole_state();
  checkpoints_.begin_save(state.elsewhere.parts > 0);
  saver.save(state, progress_, evaluation);
}

// Saves at the end. Retention of the best checkpoints needs their evaluations, so the last one is
// evaluated first.
void ReplicaRun::Impl::save_at_the_end() {
  if (options_.checkpoint.keep_best > 0 && is_done() && !progress_.stopping)
    evaluate_now(progress_.last_epoch());
  save();
}

// The next generation may be without some of these ranks. If a unit has not got all parts of the
// state, those of the ranks that go are then missing.
void ReplicaRun::Impl::save_slices() {
  if (!checkpoints_.wanted()) return;
  const int parts = engine().state_part().count;
  const bool is_in_each_unit = parts > 0 && parts <= world_.identity().elastic->unit;
  if (is_in_each_unit || (parts == 0 && !checkpoints_.has_slices())) return;
  save();
  checkpoints_.wait_for_all();
}

// A rank of one that has the whole state needs no copies.
bool ReplicaRun::Impl::keeps_copies() const {
  return world_.is_elastic() && options_.checkpoint.memory_every > 0 && group().size() > 1 &&
         (engine().state_part().count > 0 || checkpoints_.has_slices());
}

void ReplicaRun::Impl::begin_copies() {
  phase(Phase::checkpoint);
  copies_.begin(present_state(), world_.identity().generation, group(), unit_of(options_));
}

void ReplicaRun::Impl::finish_copies() {
  if (copies_.is_under_way()) copies_.finish(group(), world_.options().timeout / 4);
}

// The messages of a copy have the time of a step.
void ReplicaRun::Impl::keep_copies(const Pass& pass) {
  finish_copies();
  const bool goes_on = !is_over() && !pass.outcome.regroup;
  if (keeps_copies() && goes_on && pass.outcome.updated &&
      progress_.step % options_.checkpoint.memory_every == 0)
    begin_copies();
}

// Announces checkpoints that have become durable. At the end of a run, or after a request to stop,
// it waits for all of them.
void ReplicaRun::Impl::announce_saved() {
  if (is_over() && checkpoints_.wanted()) checkpoints_.wait_for_all();
  for (const std::string& path : checkpoints_.saver().saved(is_over())) listeners_.saved(path);
}

// Tells what the loader of rank 0 has chosen, once it has settled.
void ReplicaRun::Impl::announce_tuning() {
  const LoaderTuning tuning = generation_->loader().tuning();
  const bool tunes = tuning.tunes_threads || tuning.tunes_prefetch;
  if (!tunes || !tuning.is_settled || tuning.setting == told_tuning_ || group().rank() != 0)
    return;
  told_tuning_ = tuning.setting;
  listeners_.tell(monitor::Message{
      fmt::format("input: tuned to {}, which as settings keep it", settings_of(tuning.setting))});
  listeners_.tell(monitor::ScalarRecord{
      progress_.step,
      {{"input/threads", tuning.setting.threads}, {"input/prefetch", tuning.setting.ahead}}});
}

}  // namespace trireme
