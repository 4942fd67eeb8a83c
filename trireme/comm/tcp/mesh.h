// The ranks of a TCP group meet: each listens on its own address, publishes it over the
// control connection, and calls those of lower rank. Both ends of every connection prove the job
// token and which link of which generation it is (net/handshake.h) before anything else is
// believed. A connection without this proof is dropped, logged and otherwise ignored. No rank
// listens any more once all have met.
#pragma once
#include <trireme/base/deadline.h>
#include <trireme/base/descriptor.h>
#include <trireme/membership/member.h>
#include <string>
#include <vector>

namespace trireme::comm {

struct MeshOptions {
  // The name of the group; its keys in the store contain it.
  std::string name;
  std::string address;  // The address on which this side listens.
  std::string token;    // The token of the job.
  Milliseconds timeout{60000};
  // A peer that acknowledges nothing for this long is given up.
  Milliseconds silence{10000};
};

// [rank]; this rank's own place is empty. Each pair has two connections, so that collectives never
// wait behind messages, nor messages behind collectives.
struct Mesh {
  std::vector<Descriptor> collectives;
  std::vector<Descriptor> messages;
};

// COLLECTIVE over the group's ranks. The sockets do not block. Throws Error(timeout) naming the
// missing ranks, Error(peer_lost), or Error(invalid_argument) if a peer has another token.
Mesh connect_mesh(membership::Member& member, int rank, int size, const MeshOptions& options);

}  // namespace trireme::comm
