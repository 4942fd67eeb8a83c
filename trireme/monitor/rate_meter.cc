#include <trireme/monitor/rate_meter.h>

#include <cmath>

namespace trireme::monitor {

void RateMeter::add(int64_t samples, double seconds, double waited) {
  if (!(seconds > 0) || !std::isfinite(seconds)) return;
  steps_.push_back({samples, seconds, waited});
  samples_ += samples;
  seconds_ += seconds;
  waited_ += waited;
  while (steps_.size() > 1 && seconds_ - steps_.front().seconds >= window_seconds_) {
    samples_ -= steps_.front().samples;
    seconds_ -= steps_.front().seconds;
    waited_ -= steps_.front().waited;
    steps_.pop_front();
  }
}

std::optional<double> RateMeter::samples_per_second() const {
  if (steps_.empty()) return std::nullopt;
  return static_cast<double>(samples_) / seconds_;
}

}  // namespace trireme::monitor
