// What is known of a run so far, and how far it still has to go.
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
  bool at_epoch_end() const;  // Whether the newest step was its epoch's last; the next, the run's.
  bool at_run_end() const;
  // Mean over the samples of `epoch` (counted from 0) seen so far; empty if none were.
  std::optional<double> mean_loss(int64_t epoch) const;

 private:
  void predict_end(TimePoint now);

  int64_t steps_per_epoch_ = 0;
  ProgressView view_;
  RateMeter rate_;
  int64_t epoch_of_losses_ = -1;
  double weighted_losses_ = 0, samples_ = 0;
  std::optional<TimePoint> first_time_;  // When step first_step_ ended.
  int64_t first_step_ = 0;
};

}  // namespace trireme::monitor
