// The learning rate as a function of the step alone, so that a resumed run needs no state for it.
#pragma once
#include <trireme/config/rows.h>
#include <cstdint>
#include <functional>
#include <string>

namespace trireme {

struct ScheduleOptions {
  std::string name = "constant";  // constant, step, cosine, or one that was registered.
  double gamma = 0.1;             // step: the factor at each decay.
  int64_t every_steps = 0;        // step: the number of optimizer steps between decays.
  double minimum = 0;             // cosine: the final fraction of the base rate.
  // The number of steps over which the rate first rises linearly to the base rate.
  int64_t warmup_steps = 0;
  int64_t total_steps = 0;  // cosine: the step at which it ends. Own schedules read it too.
};

config::Rows rows_of(const ScheduleOptions*);
// Throws Error(invalid_argument) that names the option.
void check(const ScheduleOptions& options);

// Returns the fraction of the base rate at `step`; 0 is the first step. Cosine: Loshchilov, Hutter
// 2017 (SGDR), equation 5, without restarts.
double rate_factor(const ScheduleOptions& options, int64_t step);

// The fraction of the base rate at `step`, from 0. The warm-up comes before it by itself, and is
// in `step`. Any thread; the same value for the same step, since a resumed run has no other state.
using RateSchedule = std::function<double(const ScheduleOptions& options, int64_t step)>;
// Adds a name for schedule.name. Call it before the configuration is read, on every rank. Throws
// Error(invalid_argument) if the name is taken. rate_factor() throws the same, naming the step, if
// the fraction is negative or not finite.
void register_schedule(const std::string& name, RateSchedule schedule);

// Scales a learning rate that was found for another global batch. linear: in proportion to the
// batch (Goyal et al. 2017, "Accurate, large minibatch SGD", section 2.1, with warm-up as in
// section 2.2). sqrt: in proportion to its square root, as the noise of gradients (Krizhevsky
// 2014, section 5).
struct RateScaling {
  std::string rule = "none";  // none, linear, sqrt
  int64_t base_batch = 0;     // The global batch that the rate was found for.
};
config::Rows rows_of(const RateScaling*);
// Throws Error(invalid_argument) that names the option.
void check(const RateScaling& scaling);
// Returns the factor for the base rate.
double rate_scale(const RateScaling& scaling, int64_t batch);

}  // namespace trireme
