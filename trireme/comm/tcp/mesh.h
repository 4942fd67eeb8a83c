// How the ranks of a TCP group meet: each listens on its own address, publishes it over the control
// connection, and calls those of lower rank. Both ends of every connection prove the job token and
// which link of which generation it is (net/handshake.h) before anything else is believed. A
// connection without this proof is dropped, logged and otherwise ignored. No rank listens any more
// once all have met.
#pragma once
#include <trireme/base/deadline.h>
#include <trireme/base/descriptor.h>
#include <trireme/launch/member.h>
#include <string>
#include <vector>

namespace trireme::comm {

struct MeshOptions {
  std::string name;     // Of the group: keys in the store are kept apart by it.
  std::string address;  // This side's, to listen on.
  std::string token;    // The job's.
  Milliseconds timeout{60000};
  Milliseconds silence{10000};  // A peer that acknowledges nothing for so long is given up.
};

// By rank; this rank's own place is empty. Two connections a pair: collectives never wait behind
// messages, nor messages behind them.
struct Mesh {
  std::vector<Descriptor> collectives;
  std::vector<Descriptor> messages;
};

// COLLECTIVE over the group's ranks. The sockets do not block. Throws Error(timeout) naming the
// ranks that did not come, Error(peer_lost), Error(invalid_argument) if a peer has another token.
Mesh connect_mesh(launch::Member& member, int rank, int size, const MeshOptions& options);

}  // namespace trireme::comm
