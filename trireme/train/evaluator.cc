#include <ATen/Parallel.h>
#include <torch/nn/module.h>

#include <fmt/format.h>
#include <trireme/base/error.h>
#include <trireme/base/files.h>
#include <trireme/base/log.h>
#include <trireme/base/unix_time.h>
#include <trireme/checkpoint/step_name.h>
#include <trireme/comm/dtype.h>
#include <trireme/data/block_share.h>
#include <trireme/membership/roles.h>
#include <trireme/tensor/autocast.h>
#include <trireme/train/evaluator.h>
#include <trireme/train/evaluator_watch.h>
#include <trireme/train/refuse.h>
#include <trireme/train/saver_slices.h>
#include <trireme/train/stop_signal.h>
#include <trireme/train/trainer_facts.h>
#include <algorithm>
#include <set>
#include <sstream>
#include <thread>

namespace trireme {
namespace {

namespace fs = std::filesystem;

constexpr Milliseconds kLookForCheckpoints{50};
// At the end, checkpoints that would take longer are left out, but for the newest.
constexpr std::chrono::seconds kLastEvaluations{5};

bool is_damage(const Error& error) {
  return error.code() == ErrorCode::corrupt || error.code() == ErrorCode::io ||
         error.code() == ErrorCode::not_found || error.code() == ErrorCode::unsupported;
}

std::string line_about(const EvaluatedCheckpoint& evaluated, bool is_best) {
  return fmt::format("step {}: loss {:.4f}, accuracy {:.4f}{}", evaluated.found.step,
                     evaluated.found.loss, evaluated.found.accuracy,
                     is_best ? ", the best so far" : "");
}

}  // namespace

Evaluator::Evaluator(World& world, const TrainerOptions& options, const Job& job,
                     const Source& test, ReplicaModel& model, const fs::path& curve)
    : world_(world),
      options_(options),
      job_(job),
      test_(test),
      model_(model),
      curve_path_(curve),
      curve_(options.evaluator, measure_of(job.metrics, options.evaluator.measure)),
      best_(best_dir(options.checkpoint.dir)) {
  append(view_, model.tensors().parameters, StateKind::parameter);
  append(view_, model.tensors().buffers, StateKind::buffer);
  if (job.tables) rows_.emplace(job.tables);
  if (options.ema_decay > 0) model.begin_averages(options.ema_decay, view_);
  read_curve();
  // Its process may have ended between the two.
  if (const auto* const best = curve_.best()) best_.keep_only(best->found.step);
  // A run that was stopped and goes on has the time until the next evaluation.
  tell(/*may_stop=*/false);
}

void Evaluator::read_curve() {
  std::string text;
  if (path_exists(curve_path_)) text = read_file(curve_path_);
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);)
    if (const auto evaluated = EvaluationCurve::read(line)) curve_.add(*evaluated);
  lines_.emplace(curve_path_);
  // A line that a crash cut off must not take the next one with it.
  if (!text.empty() && !text.ends_with('\n')) lines_->append("\n");
}

std::vector<FoundCheckpoint> Evaluator::present() const {
  const fs::path folder = options_.checkpoint.dir;
  std::error_code error;
  std::vector<FoundCheckpoint> found;
  if (!fs::is_directory(folder, error)) return found;
  for (const int64_t step : checkpoint::steps_in(checkpoint::disk(), folder)) {
    const auto written = fs::last_write_time(
        folder / checkpoint::name_of_step(step) / checkpoint::kManifestFile, error);
    if (!error)
      found.push_back({step, std::chrono::file_clock::to_sys(written).time_since_epoch().count()});
  }
  return found;
}

bool Evaluator::evaluate_next(bool ending) {
  std::vector<FoundCheckpoint> waiting = present();  // The newest first.
  if (ending && last_took_ * static_cast<double>(waiting.size()) > kLastEvaluations)
    waiting.resize(1);
  const auto next = curve_.next(waiting);
  if (!next) return false;
  const auto began = std::chrono::steady_clock::now();
  const auto taken =
      best_.take(fs::path(options_.checkpoint.dir) / checkpoint::name_of_step(next->step));
  if (!taken) return true;  // It is gone, and the next look finds others.
  const auto evaluation = evaluation_of(*taken);
  if (!evaluation) {
    curve_.skip(*next);
    best_.drop(*taken);
    return true;
  }
  const EvaluatedCheckpoint evaluated{*next,
                                      {next->step, epoch_, evaluation->loss, evaluation->accuracy,
                                       evaluation->samples, evaluation->metrics}};
  curve_.add(evaluated);
  const auto* const best = curve_.best();
  const bool is_best = best && best->checkpoint == *next;
  // A process that ends between the two evaluates this checkpoint again.
  is_best ? static_cast<void>(best_.keep(*taken)) : best_.drop(*taken);
  tell(/*may_stop=*/true);
  write_down(evaluated);
  log_info("{}", line_about(evaluated, is_best));
  last_took_ = std::chrono::steady_clock::now() - began;
  return true;
}

std::optional<Evaluation> Evaluator::evaluation_of(const fs::path& taken) {
  try {
    read_model(taken);
  } catch (const Error& error) {
    if (!is_damage(error)) throw;
    log_warning("the evaluator passes a checkpoint over: {}", error.what());
    return std::nullopt;
  }
  const ParameterAverage::InUse averages(model_.average());
  const Autocast mixed(to_torch(options_.autocast));
  return evaluate_alone(model_.model(), job_, test_, reads());
}

// Workers may run beside it, so it takes one thread where the number is left to it.
EvaluationReads Evaluator::reads() const {
  const auto cache = test_.cache_use();
  const int64_t cached = cache ? cache->bytes_in_memory() : 0;
  return {evaluation_batch(options_.batch),
          to_torch(options_.dtype),
          {.threads = options_.loader_threads < 0 ? 1 : options_.loader_threads,
           .batches = std::max(1, options_.prefetch),
           .memory_bytes = data::memory_beside_blocks(options_.input_bytes, cached)}};
}

void Evaluator::read_model(const fs::path& taken) {
  checkpoint::SliceReader reader(taken);
  SlicePlaces places;
  for (const StateEntry& entry : view_) places.add(entry, reader);
  std::set<std::string> found;
  for (const StateEntry& entry : model_.averages()) {
    if (reader.find(name_in_file(entry, 0)) == nullptr) continue;
    places.add(entry, reader);
    found.insert(name_in_file(entry, 0));
  }
  places.read(reader);
  if (rows_) rows_->load(taken);
  model_.begin_averages_anew_but(found);
  epoch_ = reader.saved().manifest.position.epoch;
}

void Evaluator::write_down(const EvaluatedCheckpoint& evaluated) {
  lines_->append(EvaluationCurve::line_of(evaluated, unix_seconds()));
  for (const auto& sink : options_.sinks) sink->take(evaluated.found);
}

// The job may be over, so that nobody listens any more.
void Evaluator::tell(bool may_stop) {
  Json found = curve_.summary();
  if (may_stop && curve_.wants_stop())
    found["stop"] = fmt::format("no improvement in {} evaluations", curve_.without_improvement());
  try {
    world_.set_value(kEvaluatorKey, found.dump());
  } catch (const Error& error) {
    log_debug("nobody hears what the evaluator found: {}", error.what());
  }
}

void Trainer::evaluate_checkpoints(const Job& job, std::shared_ptr<const Source> train,
                                   std::shared_ptr<const Source> test,
                                   const std::filesystem::path& curve) {
  if (world_.task().role != membership::kEvaluatorRole)
    refuse_option(fmt::format("{} is no evaluator", world_.task().name()), "--evaluator");
  if (options_.checkpoint.dir.empty())
    refuse_option("checkpoint.dir is empty, so there are no checkpoints to evaluate",
                  "a checkpoint.dir that worker 0 and the evaluator share");
  if (!test || test->size() == 0)
    refuse_option("there are no held-out samples to evaluate on",
                  "a source of test samples, or no --evaluator");
  check_evaluations(options_, job, test.get());
  const StopSignal stop_signal;
  at::set_num_threads(options_.threads);
  ReplicaModel model(job, options_, /*in_parts=*/false);
  auto facts = facts_of(options_, job, *train, test.get());
  facts.merge(facts_of(model.tensors()));
  world_.set_terms(std::move(facts));
  world_.connect();
  Evaluator evaluator(world_, options_, job, *test, model, curve);
  for (bool ending = false; !ending;) {
    // Asked first: a checkpoint that comes before the end is seen after the question.
    ending = world_.finish_wanted() || StopSignal::requested();
    while (evaluator.evaluate_next(ending || StopSignal::requested())) {
    }
    if (!ending) std::this_thread::sleep_for(kLookForCheckpoints);
  }
}

}  // namespace trireme
