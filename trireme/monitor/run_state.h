// The facts that are known about a run so far, and a forecast of its end.
#pragma once
#include <trireme/monitor/progress_line.h>
#include <trireme/monitor/rate_meter.h>
#include <trireme/monitor/sink.h>
#include <chrono>
#include <optional>

namespace trireme::monitor {

class RunState {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;

  RunState() = default;
  explicit RunState(const RunStart& start);
  void step(const StepRecord& step, TimePoint now);

  const ProgressView& view() const { return view_; }
  bool at_epoch_end() const;  // Whether the newest step was the last one of its epoch.
  bool at_run_end() const;
  // The mean loss over the samples of `epoch` (counted from 0) so far; empty if there were none.
  std::optional<double> mean_loss(int64_t epoch) const;

 private:
  void predict_end(TimePoint now);

  int64_t steps_per_epoch_ = 0;
  ProgressView view_;
  RateMeter rate_;
  int64_t epoch_of_losses_ = -1;
  double weighted_losses_ = 0, samples_ = 0;
  std::optional<TimePoint> first_time_;  // The time when step first_step_ ended.
  int64_t first_step_ = 0;
};

}  // namespace trireme::monitor
