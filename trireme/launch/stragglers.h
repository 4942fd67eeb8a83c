// Who makes the others wait, and by which phase. Pure.
//
// A worker's work is the time of its steps without the waits in collectives. It is compared over
// windows of at least so many steps and so much time. A worker straggles in a window if its work a
// step is more than `factor` times the median of the others', and the difference is more than a
// millisecond, than a tenth of its whole step, and than four standard errors of both. It is told of
// after so many windows in a row, once; and once more when in as many windows in a row it did not
// straggle. So neither single slow steps nor noise nor processes that share cores evenly make a
// straggler.
#pragma once
#include <trireme/base/json.h>
#include <trireme/launch/phase.h>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace trireme::launch {

struct StragglerOptions {
  double factor = 1.5;  // 0: nobody straggles.
  int64_t steps = 10;
  std::chrono::milliseconds window{500};
  int windows = 2;
};

struct Straggler {
  int worker = 0;
  Phase phase = Phase::forward;  // That differs most.
  double seconds = 0;            // A step, of that phase,
  double others = 0;             // the median of the others',
  double wait = 0;               // and the others wait for it.
  int64_t from_step = 0;         // When it was found.
  int64_t to_step = -1;          // When it was over; -1: not yet.
  std::string describe(const std::string& name) const;
  Json to_json(int rank) const;
};

PhaseTimes mean_of(const PhaseTimes& sum);  // Of a step.
// {rank, steps, waiting, data, forward, ...}
Json to_json(const PhaseTimes& mean, int rank);

class Stragglers {
 public:
  using Time = std::chrono::steady_clock::time_point;
  Stragglers(StragglerOptions options, int workers)
      : options_(options), workers_(static_cast<size_t>(workers)) {}

  // What a worker's times are now; `step`: the one that it is in.
  void note(int worker, const PhaseTimes& times, int64_t step);
  // Those that were found since the last call, or whose trouble is over.
  std::vector<Straggler> judge(Time now);
  // At the end: those of a run that was too short for windows, judged by all of it.
  std::vector<Straggler> conclude();
  const std::vector<Straggler>& found() const { return found_; }
  // Mean of a step by phase, over all steps but the first ones; empty: too few.
  std::optional<PhaseTimes> mean_of(int worker) const;

 private:
  struct Worker {
    std::optional<int64_t> first_seen;      // Steps, when it was first noted.
    std::optional<PhaseTimes> begin, from;  // Of all that counts; of the window.
    PhaseTimes now;
    int64_t step = -1;
    int streak = 0;              // Windows in a row that contradict what was told.
    std::optional<size_t> told;  // In found_.
  };
  std::optional<Straggler> straggles(size_t worker, const std::vector<PhaseTimes>& sums) const;

  const StragglerOptions options_;
  std::vector<Worker> workers_;
  std::vector<Straggler> found_;
  std::optional<Time> window_began_;
};

}  // namespace trireme::launch
