#include <fmt/format.h>

#include <trireme/base/error.h>
#include <trireme/config/names.h>
#include <trireme/config/registry.h>
#include <trireme/config/value.h>
#include <trireme/train/refuse.h>
#include <trireme/train/schedule.h>
#include <algorithm>
#include <cmath>
#include <numbers>

namespace trireme {
namespace {

using OwnSchedules = config::Registry<RateSchedule>;
OwnSchedules& own_schedules() {
  static OwnSchedules known("schedule");
  return known;
}
config::Names& schedule_names() {
  static config::Names names{{"constant", "step", "cosine"}};
  return names;
}

double own_factor(const ScheduleOptions& options, int64_t step) {
  const double factor = own_schedules().find(options.name)(options, step);
  if (!std::isfinite(factor) || factor < 0)
    refuse_option(fmt::format("schedule '{}' gives the fraction {} of the learning rate for step "
                              "{}",
                              options.name, factor, step + 1),
                  "a schedule that gives a number from 0 on");
  return factor;
}

}  // namespace

void register_schedule(const std::string& name, RateSchedule schedule) {
  own_schedules().add(name, std::move(schedule), schedule_names().all());
  schedule_names().add(name);
}

config::Rows rows_of(const ScheduleOptions*) {
  using O = ScheduleOptions;
  return config::all_of<O>(
      {config::row(&O::name, {.name = "schedule.name",
                              .meaning = "How the learning rate changes: not at all, in steps, "
                                         "along a cosine over the whole run, or as a programme "
                                         "has registered.",
                              .choices = [] { return schedule_names().all(); }}),
       config::row(&O::gamma, {.name = "schedule.gamma",
                               .meaning = "step: factor of each decay.",
                               .range = config::above(0),
                               .only_for = {"schedule.name", {"step"}}}),
       config::row(&O::minimum,
                   {.name = "schedule.minimum",
                    .meaning = "cosine: fraction of the learning rate that is left at the end.",
                    .range = config::from_to(0, 1),
                    .only_for = {"schedule.name", {"cosine"}}}),
       config::row(&O::warmup_steps,
                   {.name = "schedule.warmup_steps",
                    .meaning = "Steps over which the learning rate first rises from near 0.",
                    .range = config::at_least(0)}),
       config::row(&O::every_steps,
                   {.name = "schedule.every_steps",
                    .meaning = "step: steps between decays; 0: schedule.every in steps.",
                    .range = config::at_least(0),
                    .in_file = false}),
       config::row(&O::total_steps,
                   {.name = "schedule.total_steps",
                    .meaning = "cosine: the step at which it ends; 0: that of the run.",
                    .range = config::at_least(0),
                    .in_file = false})});
}

void check(const ScheduleOptions& options) {
  config::check_values(options);
  if (options.name == "step" && options.every_steps < 1)
    refuse_option("schedule.name is step, but schedule.every does not say after how many epochs",
                  "schedule.every=10");
}

config::Rows rows_of(const RateScaling*) {
  using O = RateScaling;
  return config::all_of<O>(
      {config::row(&O::rule,
                   {.name = "optimizer.scale_lr",
                    .meaning = "How the learning rate follows data.batch / optimizer.base_batch: "
                               "not at all, in proportion, or as its square root.",
                    .choices = config::one_of({"none", "linear", "sqrt"})}),
       config::row(
           &O::base_batch,
           {.name = "optimizer.base_batch",
            .meaning =
                "The global batch for which optimizer.lr was found; optimizer.scale_lr needs it.",
            .range = config::at_least(0),
            .only_for = {"optimizer.scale_lr", {"linear", "sqrt"}}})});
}

void check(const RateScaling& scaling) {
  config::check_values(scaling);
  if (scaling.rule != "none" && scaling.base_batch < 1)
    refuse_option(
        fmt::format("optimizer.scale_lr is {}, but optimizer.base_batch does not say for "
                    "which batch optimizer.lr was found",
                    scaling.rule),
        "optimizer.base_batch=256");
  if (scaling.rule == "none" && scaling.base_batch != 0)
    refuse_option(fmt::format("optimizer.base_batch is {}, but optimizer.scale_lr is none",
                              scaling.base_batch),
                  "optimizer.scale_lr=linear");
}

double rate_scale(const RateScaling& scaling, int64_t batch) {
  if (scaling.rule == "none") return 1;
  const double ratio = static_cast<double>(batch) / static_cast<double>(scaling.base_batch);
  return scaling.rule == "linear" ? ratio : std::sqrt(ratio);
}

double rate_factor(const ScheduleOptions& options, int64_t step) {
  if (step < options.warmup_steps)
    return static_cast<double>(step + 1) / static_cast<double>(options.warmup_steps + 1);
  const int64_t since = step - options.warmup_steps;
  if (options.name == "step") {
    const int64_t times = since / options.every_steps;
    return std::pow(options.gamma, static_cast<double>(times));
  }
  if (options.name == "cosine") {
    const int64_t length = std::max<int64_t>(1, options.total_steps - options.warmup_steps);
    const double progress =
        std::min(1.0, static_cast<double>(since) / static_cast<double>(length));
    return options.minimum +
           (1 - options.minimum) * 0.5 * (1 + std::cos(std::numbers::pi * progress));
  }
  return options.name == "constant" ? 1.0 : own_factor(options, step);
}

}  // namespace trireme
