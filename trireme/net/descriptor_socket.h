// Passes open file descriptors from one process of a host to another, over Unix sockets in the
// abstract name space. No file can be left behind. Other network name spaces cannot reach the
// sockets, so they count as other hosts.
//
// Every process of the host can read the socket's address, so the listener's name also contains a
// secret. The job sends the name over its control connections only. A process that connects proves
// by an HMAC under the secret that it knows the name, and this proof is valid for this one
// listener only.
#pragma once
#include <trireme/base/deadline.h>
#include <trireme/base/descriptor.h>
#include <list>
#include <optional>
#include <string>
#include <utility>

namespace trireme::net {

// A connection between two processes of one user.
class DescriptorSocket {
 public:
  // Throws Error(io) if no process of this user listens under this name on this host.
  static DescriptorSocket connect(const std::string& name, Deadline deadline);
  explicit DescriptorSocket(Descriptor socket) : socket_(std::move(socket)) {}

  void send_number(int64_t number, Deadline deadline);
  int64_t receive_number(Deadline deadline);
  // Both throw Error(timeout | peer_lost | corrupt).
  void send_descriptor(int descriptor, Deadline deadline);
  Descriptor receive_descriptor(Deadline deadline);

 private:
  void wait(short events, Deadline deadline) const;
  Descriptor socket_;
};

class DescriptorListener {
 public:
  DescriptorListener();  // Makes a name that cannot be guessed. Throws Error(io).
  const std::string& name() const { return name_; }
  // Returns the next process of the same user that proves the name; drops all others. Throws
  // Error(timeout).
  DescriptorSocket accept(Deadline deadline);

 private:
  void take_waiting();
  std::optional<DescriptorSocket> take_proven();

  Descriptor socket_;
  std::string name_;
  std::list<Descriptor> strangers_;  // Connections without a proof so far, oldest first.
};

}  // namespace trireme::net
