// How an engine reaches the parameter servers of its job.
#pragma once
#include <trireme/base/deadline.h>
#include <trireme/net/message.h>
#include <trireme/plan/ps_options.h>
#include <functional>
#include <string>
#include <vector>

namespace trireme {

struct ServerAccess {
  plan::PsOptions options;
  std::string token;   // The job's.
  int generation = 0;  // Of the workers.
  // The addresses of all servers, by their number. Throws Error(timeout) naming those that are
  // missing.
  std::function<std::vector<net::Endpoint>(Deadline)> find;
  // Throws Error(peer_lost) if this generation has lost a worker.
  std::function<void()> look;
};

}  // namespace trireme
