// SIGTERM, SIGINT and SIGHUP as a flag that the training loop can ask for.
#pragma once

namespace trireme {

// While an object lives, the first of these signals only sets a flag. A second one, half a second
// later or more, ends the process as it would without this class. Trireme's own requests
// (watch/stop_request.h) set the flag, and count neither as the first signal nor as the second.
// Objects may be nested. They are made and destroyed on one thread at a time.
class StopSignal {
 public:
  StopSignal();
  ~StopSignal();
  StopSignal(const StopSignal&) = delete;
  StopSignal& operator=(const StopSignal&) = delete;
  static bool requested();  // Any thread.
};

}  // namespace trireme
