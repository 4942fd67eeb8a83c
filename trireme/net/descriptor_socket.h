// Hands open file descriptors from one process of a host to another, over Unix sockets in the
// abstract name space: no file that could stay behind, and out of reach of other network
// namespaces, which therefore count as other hosts.
#pragma once
#include <trireme/base/deadline.h>
#include <trireme/base/descriptor.h>
#include <functional>
#include <string>
#include <utility>

namespace trireme::net {

// Called every few milliseconds of a wait; throws (peer_lost) once a worker is known to be lost.
// May be empty.
using ThrowIfLost = std::function<void()>;

// A connection between two processes of one user.
class DescriptorSocket {
 public:
  // Throws Error(peer_lost) if nobody listens under this name here any more, Error(io) if another
  // user does.
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
  // Under a name nobody can guess. Throws Error(io).
  explicit DescriptorListener(ThrowIfLost throw_if_lost = {});
  const std::string& name() const { return name_; }
  // The next process of the same user; others are turned away. Throws Error(timeout | peer_lost).
  DescriptorSocket accept(Deadline deadline);

 private:
  Descriptor socket_;
  std::string name_;
  ThrowIfLost throw_if_lost_;
};

}  // namespace trireme::net
