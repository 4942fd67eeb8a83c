// The membership service's rules as a pure state machine: no sockets, no clocks, no threads.
//
// It is told what happened and answers with the messages to send. launch/coordinator.h feeds it from control connections.
#pragma once
#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <trireme/base/json.h>
#include <trireme/launch/phase.h>
#include <vector>

namespace trireme::launch {

struct MembershipOptions {
  int workers = 1;
  std::chrono::milliseconds join_timeout{60000};      // From the first event until all have joined.
  std::chrono::milliseconds heartbeat_timeout{10000}; // Silence longer than this is a loss.
};

struct LostWorker {
  int worker = -1;
  std::string host;
  int pid = 0;
  PhaseAt last;
  std::string reason;  // "connection closed", "silent for 10.2 s", "killed by signal 9 (SIGKILL)"
  std::string describe() const;
};

}  // namespace trireme::launch
