#include <trireme/config/row.h>
#include <trireme/monitor/event_json.h>
#include <trireme/train/early_stop.h>
#include <trireme/train/evaluation_curve.h>
#include <algorithm>
#include <cmath>

namespace trireme {

config::Rows rows_of(const EvaluatorOptions*) {
  using O = EvaluatorOptions;
  return config::all_of<O>(
      {config::row(&O::patience,
                   {.name = "evaluator.patience",
                    .meaning = "Evaluations in a row without an improvement after which the "
                               "evaluator (--evaluator) stops the run; 0: it does not.",
                    .range = config::at_least(0),
                    .agreed = false}),
       config::row(&O::minimum_change,
                   {.name = "evaluator.minimum_change",
                    .meaning = "A change of evaluator.measure that is not larger is no "
                               "improvement for evaluator.patience.",
                    .range = config::at_least(0),
                    .agreed = false}),
       config::row(&O::measure, {.name = "evaluator.measure",
                                 .meaning = "The value by which the evaluator finds the best "
                                            "checkpoint and improvements: loss, accuracy, or a "
                                            "metric that a programme registers.",
                                 .agreed = false})});
}

std::filesystem::path best_dir(const std::filesystem::path& checkpoint_dir) {
  return checkpoint_dir / "best";
}

void EvaluationCurve::add(const EvaluatedCheckpoint& evaluated) {
  by_step_[evaluated.checkpoint.step] = evaluated;
}

void EvaluationCurve::skip(const FoundCheckpoint& checkpoint) {
  skipped_[checkpoint.step] = checkpoint.written;
}

std::optional<FoundCheckpoint> EvaluationCurve::next(
    const std::vector<FoundCheckpoint>& present) const {
  std::optional<FoundCheckpoint> oldest;
  for (const FoundCheckpoint& each : present) {
    const auto skipped = skipped_.find(each.step);
    if (skipped != skipped_.end() && skipped->second == each.written) continue;
    const auto known = by_step_.find(each.step);
    const bool is_newer = by_step_.empty() || each.step > by_step_.rbegin()->first;
    const bool took_a_place = known != by_step_.end() && known->second.checkpoint != each;
    if ((is_newer || took_a_place) && (!oldest || each.step < oldest->step)) oldest = each;
  }
  return oldest;
}

bool EvaluationCurve::has_value(const monitor::EvalRecord& found) const {
  return std::isfinite(measure_.value_in(found));
}

const EvaluatedCheckpoint* EvaluationCurve::best() const {
  const EvaluatedCheckpoint* best = nullptr;
  for (const auto& [step, each] : by_step_)
    if (has_value(each.found) && (!best || measure_.is_better(measure_.value_in(each.found),
                                                              measure_.value_in(best->found), 0)))
      best = &each;
  return best;
}

int64_t EvaluationCurve::without_improvement() const {
  EarlyStop stop({options_.patience, options_.minimum_change, options_.measure}, measure_);
  for (const auto& [step, each] : by_step_) stop.take(each.found);
  return stop.without_improvement();
}

Json EvaluationCurve::summary() const {
  const EvaluatedCheckpoint* const found = best();
  return {
      {"evaluations", by_step_.size()},
      {"newest_step", by_step_.empty() ? Json() : Json(by_step_.rbegin()->first)},
      {"best_step", found ? Json(found->found.step) : Json()},
      {"best_loss", found && std::isfinite(found->found.loss) ? Json(found->found.loss) : Json()},
      {"best_accuracy", found ? Json(found->found.accuracy) : Json()}};
}

std::string EvaluationCurve::line_of(const EvaluatedCheckpoint& evaluated, double unix_seconds) {
  Json json = monitor::to_json(evaluated.found, unix_seconds);
  json["written"] = evaluated.checkpoint.written;
  return monitor::to_line(json) + "\n";
}

std::optional<EvaluatedCheckpoint> EvaluationCurve::read(const std::string& line) {
  const Json json = Json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object() || !json.contains("written") || !json["written"].is_number_integer())
    return std::nullopt;
  const auto event = monitor::event_of(json);
  const auto* const found = event ? std::get_if<monitor::EvalRecord>(&*event) : nullptr;
  if (!found) return std::nullopt;
  return EvaluatedCheckpoint{{found->step, json["written"].get<int64_t>()}, *found};
}

}  // namespace trireme
