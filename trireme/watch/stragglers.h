// Finds the workers that make the others wait, and the phase in which they are slow. Pure.
//
// A worker's work is the time of its steps without the waits in collectives. It is compared over
// windows of at least `steps` steps and `window` time. A worker straggles in a window if its work
// per step is more than `factor` times the median of the others', and the difference is more than
// each of these: a millisecond, a tenth of its whole step, and four standard errors of both. It is
// reported once after straggling in `windows` windows in a row, and once more after as many
// windows in a row without. So single slow steps, noise, and processes that share cores evenly
// make no straggler.
#pragma once
#include <trireme/base/json.h>
#include <trireme/watch/phase.h>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace trireme::watch {

struct StragglerOptions {
  double factor = 1.5;  // 0: no worker straggles.
  int64_t steps = 10;
  std::chrono::milliseconds window{500};
  int windows = 2;
};

struct Straggler {
  int worker = 0;
  Phase phase = Phase::forward;  // The phase that differs most.
  double seconds = 0;            // Its time in that phase, per step.
  double others = 0;             // The median of the others' times in that phase.
  double wait = 0;               // The time that the others wait for it, per step.
  int64_t from_step = 0;         // The step in which it was found.
  int64_t to_step = -1;          // The step in which it was over; -1: not yet.
  std::string describe(const std::string& name) const;
  Json to_json(int rank) const;
};

PhaseTimes mean_of(const PhaseTimes& sum);  // The mean of a step.
// {rank, steps, waiting, data, forward, ...}
Json to_json(const PhaseTimes& mean, int rank);

class Stragglers {
 public:
  using Time = std::chrono::steady_clock::time_point;
  Stragglers(StragglerOptions options, int workers)
      : options_(options), workers_(static_cast<size_t>(workers)) {}

  // Notes a worker's times and its current step.
  void note(int worker, const PhaseTimes& times, int64_t step);
  // Returns the stragglers found since the last call, and those that are over.
  std::vector<Straggler> judge(Time now);
  // At the end of a run that was too short for windows, judges the whole run.
  std::vector<Straggler> conclude();
  const std::vector<Straggler>& found() const { return found_; }
  // The mean of a step by phase, over all steps but the first ones; empty if there are too few.
  std::optional<PhaseTimes> mean_of(int worker) const;

 private:
  struct Worker {
    std::optional<int64_t> first_seen;  // Its finished steps when it was first noted.
    // The times at the begin of all steps that count, and at the begin of the window.
    std::optional<PhaseTimes> begin, from;
    PhaseTimes now;
    int64_t step = -1;
    int streak = 0;              // The windows in a row that contradict the last report.
    std::optional<size_t> told;  // The index in found_ of the report that still holds.
  };
  std::optional<Straggler> straggles(size_t worker, const std::vector<PhaseTimes>& sums) const;

  const StragglerOptions options_;
  std::vector<Worker> workers_;
  std::vector<Straggler> found_;
  std::optional<Time> window_began_;
};

}  // namespace trireme::watch
