// Learning rate as a function of the step alone, so that a resumed run needs no state for it.
#pragma once
#include <cstdint>
#include <string>

namespace trireme {

struct ScheduleOptions {
  std::string name = "constant";  // constant, step, cosine
  double gamma = 0.1;             // step: factor at each decay.
  int64_t every_steps = 0;        // step: optimizer steps between decays.
  double minimum = 0;             // cosine: final fraction of the base rate.
  int64_t warmup_steps = 0;       // Rises linearly to the base rate over so many steps, before everything else.
  int64_t total_steps = 0;        // cosine: where it ends.
};

// Throws Error(invalid_argument) naming the option.
void check(const ScheduleOptions& options);

// The fraction of the base rate at `step` (0 is the first). Cosine: Loshchilov, Hutter 2017 (SGDR), equation 5, without restarts.
double rate_factor(const ScheduleOptions& options, int64_t step);

}  // namespace trireme
