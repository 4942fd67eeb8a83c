// A process of an elastic job between two generations: it tells the coordinator that it is there, and is told its place.
#pragma once
#include <trireme/base/deadline.h>
#include <trireme/net/control.h>
#include <memory>
#include <optional>
#include <string>

namespace trireme::launch {

class Arrival {
 public:
  // Returns once the coordinator knows of it: the generation before may be left then. `step`: committed steps that this process has the
  // state of, -1: none. `reason`: why it gave a step up, empty if it did not. Throws Error(timeout | peer_lost | invalid_argument).
  Arrival(const net::Endpoint& coordinator, const std::string& token, int64_t process, int64_t step, const std::string& reason,
          Deadline deadline);
  ~Arrival();  // Before wait() has returned: a loss.

  struct Place {
    int generation = 0, worker = 0, workers = 1;
    int64_t step = -1;  // Committed steps that worker 0 has the state of.
    std::string cause;
  };
  // Until the next generation has formed; empty if it does without this process. Throws Error(peer_lost) when none can form or the
  // coordinator is lost, Error(timeout).
  std::optional<Place> wait(Deadline deadline);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace trireme::launch
