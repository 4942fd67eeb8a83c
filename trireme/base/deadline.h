// A point in time by which a wait must have ended.
#pragma once
#include <algorithm>
#include <chrono>

namespace trireme {

using Milliseconds = std::chrono::milliseconds;

class Deadline {
 public:
  using Clock = std::chrono::steady_clock;
  static Deadline after(Milliseconds wait) { return Deadline(Clock::now() + wait, wait); }

  bool expired() const { return Clock::now() >= at_; }
  Milliseconds remaining() const {  // Never negative.
    return std::max(Milliseconds(0), std::chrono::duration_cast<Milliseconds>(at_ - Clock::now()));
  }
  Clock::time_point at() const { return at_; }
  Milliseconds allowed() const { return allowed_; }  // The whole wait, for messages.

 private:
  Deadline(Clock::time_point at, Milliseconds allowed) : at_(at), allowed_(allowed) {}
  Clock::time_point at_;
  Milliseconds allowed_;
};

}  // namespace trireme
