// The samples per second over the last steps.
#pragma once
#include <cstdint>
#include <deque>
#include <optional>

namespace trireme::monitor {

// Measures the newest steps that together took about `window_seconds`, at least one step. The time
// between steps (evaluation, saving) does not count.
class RateMeter {
 public:
  explicit RateMeter(double window_seconds = 2.0) : window_seconds_(window_seconds) {}
  void add(int64_t samples, double seconds);
  std::optional<double> samples_per_second() const;  // Empty before a time was measured.

 private:
  struct Step {
    int64_t samples;
    double seconds;
  };
  double window_seconds_;
  std::deque<Step> steps_;
  int64_t samples_ = 0;
  double seconds_ = 0;
};

}  // namespace trireme::monitor
