#include <fmt/format.h>

#include <trireme/base/error.h>
#include <trireme/train/refuse.h>
#include <trireme/train/schedule.h>
#include <algorithm>
#include <cmath>
#include <numbers>

namespace trireme {
void check(const ScheduleOptions& options) {
  if (options.name != "constant" && options.name != "step" && options.name != "cosine")
    refuse_option(fmt::format("schedule '{}' is not known", options.name),
                  "constant, step or cosine");
  if (options.warmup_steps < 0)
    refuse_option(fmt::format("schedule.warmup_steps of {}", options.warmup_steps), "0 or more");
  if (options.name == "step" && options.every_steps < 1)
    refuse_option(fmt::format("schedule 'step' decays every {} steps", options.every_steps),
                  "schedule.every of at least 1");
  if (options.name == "cosine" && (options.minimum < 0 || options.minimum > 1))
    refuse_option(fmt::format("schedule.minimum of {}", options.minimum), "a fraction in 0..1");
}

void check(const RateScaling& scaling) {
  if (scaling.rule != "none" && scaling.rule != "linear" && scaling.rule != "sqrt")
    refuse_option(fmt::format("optimizer.scale_lr is '{}'", scaling.rule), "none, linear or sqrt");
  if (scaling.rule != "none" && scaling.base_batch < 1)
    refuse_option(fmt::format("optimizer.scale_lr is {}, but optimizer.base_batch is {}",
                              scaling.rule, scaling.base_batch),
                  "the global batch that optimizer.lr was found for");
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
  if (options.name == "step")
    return std::pow(options.gamma, static_cast<double>(since / options.every_steps));
  if (options.name == "cosine") {
    const int64_t length = std::max<int64_t>(1, options.total_steps - options.warmup_steps);
    const double progress =
        std::min(1.0, static_cast<double>(since) / static_cast<double>(length));
    return options.minimum +
           (1 - options.minimum) * 0.5 * (1 + std::cos(std::numbers::pi * progress));
  }
  return 1.0;
}

}  // namespace trireme
