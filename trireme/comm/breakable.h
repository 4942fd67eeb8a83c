// What carriers with connections offer to tests of failures.
#pragma once

namespace trireme::comm {

class Breakable {
 public:
  virtual ~Breakable() = default;
  // Shuts this rank's connection to `peer` as a broken link would: waits on it end in
  // Error(peer_lost), at both ends. Any thread.
  virtual void drop_link(int peer) = 0;
};

}  // namespace trireme::comm
