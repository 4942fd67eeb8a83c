// How an engine reaches the parameter servers of its job.
#pragma once
#include <trireme/base/deadline.h>
#include <trireme/parallel/servers/server_chains.h>
#include <trireme/plan/ps_options.h>
#include <functional>
#include <optional>
#include <string>

namespace trireme {

struct ServerAccess {
  plan::PsOptions options;
  std::string token;   // The job's.
  int generation = 0;  // Of the workers.
  // Waits for the servers. Those that the job has lost are left out, as long as others have copies
  // of their pieces. Throws Error(timeout) naming those that are missing.
  std::function<ServerPlaces(Deadline)> find;
  // Looks for a process that has the task of a lost server and serves. Does not wait; null: there
  // is none ever.
  std::function<std::optional<ServerPlace>(int server)> find_again;
  IsServerLost is_lost;
  WhyServerLost why_lost;
  // Throws Error(peer_lost) if this generation has lost a worker.
  std::function<void()> look;
  net::ChannelOptions channel = {};
  int64_t early_bytes = int64_t{1} << 20;  // With ps.overlap (ServerClientOptions::early_bytes).
};

}  // namespace trireme
