// An interface through which tests break the connections of a backend.
#pragma once

namespace trireme::comm {

class Breakable {
 public:
  virtual ~Breakable() = default;
  // Shuts down this rank's connection to `peer`, as a broken link would. Waits on it end in
  // Error(peer_lost) at both ends. Any thread.
  virtual void drop_link(int peer) = 0;
};

}  // namespace trireme::comm
