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
#include <functional>
#include <list>
#include <optional>
#include <string>
#include <utility>

namespace trireme::net {

// A wait calls it every few milliseconds. It throws Error(peer_lost) once a worker is known to be
// lost. It may be empty.
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
  // Both throw Error(timeout | peer_lost | corrupt).
  void send_descriptor(int descriptor, Deadline deadline);
  Descriptor receive_descriptor(Deadline deadline);

 private:
  void wait(short events, Deadline deadline) const;
  Descriptor socket_;
  ThrowIfLost throw_if_lost_;
};

class DescriptorListener {
 public:
  // Makes a name that cannot be guessed. Throws Error(io).
  explicit DescriptorListener(ThrowIfLost throw_if_lost = {});
  const std::string& name() const { return name_; }
  // Returns the next process of the same user that proves the name; drops all others. Throws
  // Error(timeout | peer_lost).
  DescriptorSocket accept(Deadline deadline);
  // The same without waiting: empty if no such process has come yet.
  std::optional<DescriptorSocket> accept_now();

 private:
  void take_waiting();
  std::optional<DescriptorSocket> take_proven();

  Descriptor socket_;
  std::string name_;
  ThrowIfLost throw_if_lost_;
  std::list<Descriptor> strangers_;  // Connections without a proof so far, oldest first.
};

}  // namespace trireme::net
