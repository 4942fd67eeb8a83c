// SIGTERM and SIGINT as a question the training loop can ask.
#pragma once

namespace trireme {

// While it lives, the first SIGTERM or SIGINT only sets a flag; a second one ends the process as it would have without us.
class StopSignal {
 public:
  StopSignal();
  ~StopSignal();
  StopSignal(const StopSignal&) = delete;
  StopSignal& operator=(const StopSignal&) = delete;
  static bool requested();  // Any thread.
};

}  // namespace trireme
