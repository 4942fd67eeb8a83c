// A point in time by which a wait must have ended.
#pragma once
#include <algorithm>
#include <chrono>
#include <limits>

namespace trireme {

using Milliseconds = std::chrono::milliseconds;

// The longest wait: a hundred years. A longer one is cut to it, so that no clock overflows.
inline constexpr Milliseconds kLongestWait = std::chrono::hours(100 * 365 * 24);
constexpr Milliseconds saturated(Milliseconds wait) {
  return std::clamp(wait, -kLongestWait, kLongestWait);
}

class Deadline {
 public:
  using Clock = std::chrono::steady_clock;
  static Deadline after(Milliseconds wait) {
    return Deadline(Clock::now() + saturated(wait), wait);
  }

  bool expired() const { return Clock::now() >= at_; }
  // The result is 0 if the deadline has expired, and never before, so that a wait for it does not
  // end a part of a millisecond too early.
  Milliseconds remaining() const {
    return std::max(Milliseconds(0), std::chrono::ceil<Milliseconds>(at_ - Clock::now()));
  }
  // The same as remaining(), for calls such as poll() that take the milliseconds as an int.
  int remaining_as_int() const {
    return static_cast<int>(
        std::min<Milliseconds::rep>(remaining().count(), std::numeric_limits<int>::max()));
  }
  Clock::time_point at() const { return at_; }
  Milliseconds allowed() const { return allowed_; }  // The whole wait, for messages.

 private:
  Deadline(Clock::time_point at, Milliseconds allowed) : at_(at), allowed_(allowed) {}
  Clock::time_point at_;
  Milliseconds allowed_;
};

}  // namespace trireme
