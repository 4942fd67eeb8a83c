// SIGTERM, SIGINT and SIGHUP as a question the training loop can ask.
#pragma once

namespace trireme {

// While one lives, the first of these signals only sets a flag; a second one (half a second later
// or more) ends the process as it would have without us. Objects nest; made and destroyed on one
// thread at a time.
class StopSignal {
 public:
  StopSignal();
  ~StopSignal();
  StopSignal(const StopSignal&) = delete;
  StopSignal& operator=(const StopSignal&) = delete;
  static bool requested();  // Any thread.
};

}  // namespace trireme
