// The samples per second over the last steps, and their share of time without data.
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
  // `waited`: the seconds among them in which the step waited for its data.
  void add(int64_t samples, double seconds, double waited = 0);
  std::optional<double> samples_per_second() const;  // Empty before a time was measured.
  double waited_share() const { return seconds_ > 0 ? waited_ / seconds_ : 0; }

 private:
  struct Step {
    int64_t samples;
    double seconds, waited;
  };
  double window_seconds_;
  std::deque<Step> steps_;
  int64_t samples_ = 0;
  double seconds_ = 0, waited_ = 0;
};

}  // namespace trireme::monitor
