// Hands open file descriptors from one process of a host to another, over Unix sockets in the
// abstract name space: no file that could stay behind, and out of reach of other network
// namespaces, which therefore count as other hosts.
//
// Every process of the host can read the socket's address. The name that the listener gives away
// holds a secret besides; the job hands the name out over its control connections only, and a
// process that connects shows by an HMAC under the secret that it knows the name. This proof is
// bound to this one listener.
#pragma once
#include <trireme/base/deadline.h>
#include <trireme/base/descriptor.h>
#include <functional>
#include <list>
#include <optional>
#include <string>
#include <utility>

namespace trireme::net {

// Called every few milliseconds of a wait; throws (peer_lost) once a worker is known to be lost.
// May be empty.
using ThrowIfLost = std::function<void()>;

// A connection between two processes of one user.
class DescriptorSocket {
 public:
  // Throws Error(peer_lost) if no process listens under this name here any more, Error(io) if
  // another user does.
  static DescriptorSocket connect(const std::string& name, Deadline deadline,
                                  ThrowIfLost throw_if_lost = {});
  explicit DescriptorSocket(Descriptor socket, ThrowIfLost throw_if_lost = {})
      : socket_(std::move(socket)), throw_if_lost_(std::move(throw_if_lost)) {}

  void send_number(int64_t number, Deadline deadline);
  int64_t receive_number(Deadline deadline);
  // Throw Error(timeout | peer_lost | corrupt).
  void send_descriptor(int descriptor, Deadline deadline);
  Descriptor receive_descriptor(Deadline deadline);

 private:
  void wait(short events, Deadline deadline) const;
  Descriptor socket_;
  ThrowIfLost throw_if_lost_;
};

class DescriptorListener {
 public:
  // Under a name that cannot be guessed. Throws Error(io).
  explicit DescriptorListener(ThrowIfLost throw_if_lost = {});
  const std::string& name() const { return name_; }
  // The next process of the same user that knows the name; others are turned away. Throws
  // Error(timeout | peer_lost).
  DescriptorSocket accept(Deadline deadline);

 private:
  void take_waiting();
  std::optional<DescriptorSocket> take_proven();

  Descriptor socket_;
  std::string name_;
  ThrowIfLost throw_if_lost_;
  std::list<Descriptor> strangers_;  // Connected, and without proof so far; oldest first.
};

}  // namespace trireme::net
