#include <fmt/format.h>

#include <trireme/config/row.h>
#include <trireme/train/early_stop.h>
#include <cmath>

namespace trireme {

config::Rows rows_of(const EarlyStopOptions*) {
  using O = EarlyStopOptions;
  return config::all_of<O>(
      {config::row(&O::patience,
                   {.name = "early_stop.patience",
                    .meaning = "Evaluations in a row (train.evaluate_every) without an "
                               "improvement after which the run stops; 0: it does not.",
                    .range = config::at_least(0)}),
       config::row(&O::minimum_change,
                   {.name = "early_stop.minimum_change",
                    .meaning = "A change of early_stop.measure that is not larger is no "
                               "improvement.",
                    .range = config::at_least(0)}),
       config::row(&O::measure,
                   {.name = "early_stop.measure",
                    .meaning = "The value on the held-out samples by which early_stop finds "
                               "improvements: loss, accuracy, or a metric that a programme "
                               "registers."})});
}

void EarlyStop::take(const monitor::EvalRecord& found) {
  if (found.step <= newest_step_) return;
  newest_step_ = found.step;
  const double value = measure_.value_in(found);
  const bool improves =
      std::isfinite(value) &&
      (std::isnan(best_) || measure_.is_better(value, best_, options_.minimum_change));
  without_improvement_ = improves ? 0 : without_improvement_ + 1;
  if (!improves) return;
  best_ = value;
  best_step_ = found.step;
}

std::string EarlyStop::describe() const {
  const std::string since =
      fmt::format("{} evaluation{} since {} no better", without_improvement_,
                  without_improvement_ == 1 ? "" : "s", without_improvement_ == 1 ? "is" : "are");
  if (std::isnan(best_)) return fmt::format("{} was never a number; {}", measure_.name, since);
  return fmt::format("{} {:.4g} of step {} is the best; {}", measure_.name, best_, best_step_,
                     since);
}

Json EarlyStop::state() const {
  if (options_.patience == 0) return {};
  return {{"measure", measure_.name},
          {"best", std::isnan(best_) ? Json() : Json(best_)},
          {"best_step", best_step_},
          {"newest_step", newest_step_},
          {"without_improvement", without_improvement_}};
}

void EarlyStop::load(const Json& state) {
  best_ = std::numeric_limits<double>::quiet_NaN();
  best_step_ = without_improvement_ = 0;
  newest_step_ = -1;
  if (!state.is_object() || state.value("measure", "") != measure_.name) return;
  if (state["best"].is_number()) best_ = state["best"];
  best_step_ = state.value("best_step", int64_t{0});
  newest_step_ = state.value("newest_step", int64_t{-1});
  without_improvement_ = state.value("without_improvement", int64_t{0});
}

}  // namespace trireme
