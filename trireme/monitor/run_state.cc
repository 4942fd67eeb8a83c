#include <trireme/monitor/run_state.h>

#include <algorithm>

namespace trireme::monitor {

RunState::RunState(const RunStart& start) : steps_per_epoch_(start.steps_per_epoch) {
  view_.total_steps = start.total_steps;
  view_.step = start.first_step;
  if (steps_per_epoch_ <= 0) return;
  view_.epochs = (start.total_steps + steps_per_epoch_ - 1) / steps_per_epoch_;
  view_.epoch = start.first_step / steps_per_epoch_ + 1;
  if (view_.epochs > 0) view_.epoch = std::min(view_.epoch, view_.epochs);
}

void RunState::step(const StepRecord& step, TimePoint now) {
  if (step.epoch != epoch_of_losses_) {
    epoch_of_losses_ = step.epoch;
    weighted_losses_ = samples_ = 0;
  }
  const double samples = std::max<double>(1, static_cast<double>(step.samples));
  weighted_losses_ += step.loss * samples;
  samples_ += samples;

  rate_.add(step.samples, step.seconds, step.waited);
  view_.epoch = step.epoch + 1;
  view_.step = step.step;
  view_.loss = step.loss;
  view_.samples_per_second = rate_.samples_per_second();
  view_.waited_share = rate_.waited_share();
  predict_end(now);
}

// The forecast uses the wall time of all steps after the first, with the evaluations and saves
// between them. The first step takes longer than the others.
void RunState::predict_end(TimePoint now) {
  if (!first_time_ || view_.step <= first_step_) {
    first_time_ = now;
    first_step_ = view_.step;
    return;
  }
  if (view_.total_steps <= 0) return;
  const double per_step = std::chrono::duration<double>(now - *first_time_).count() /
                          static_cast<double>(view_.step - first_step_);
  view_.seconds_left =
      per_step * static_cast<double>(std::max<int64_t>(0, view_.total_steps - view_.step));
}

bool RunState::at_epoch_end() const {
  return steps_per_epoch_ > 0 && view_.step % steps_per_epoch_ == 0;
}
bool RunState::at_run_end() const {
  return view_.total_steps > 0 && view_.step >= view_.total_steps;
}

std::optional<double> RunState::mean_loss(int64_t epoch) const {
  if (epoch != epoch_of_losses_ || samples_ == 0) return std::nullopt;
  return weighted_losses_ / samples_;
}

}  // namespace trireme::monitor
