// Hands open file descriptors from one process of a host to another, over Unix sockets in the
// abstract name space: no file that could stay behind, and out of reach of other network
// namespaces, which therefore count as other hosts.
#pragma once
#include <trireme/base/deadline.h>
#include <trireme/base/descriptor.h>
#include <string>
#include <utility>

namespace trireme::net {

// A connection between two processes of one user.
class DescriptorSocket {
 public:
  // Throws Error(io) if nobody listens under this name here, or who does is another user.
  static DescriptorSocket connect(const std::string& name, Deadline deadline);
  explicit DescriptorSocket(Descriptor socket) : socket_(std::move(socket)) {}

  void send_number(int64_t number, Deadline deadline);
  int64_t receive_number(Deadline deadline);
  // Throw Error(timeout | peer_lost | corrupt).
  void send_descriptor(int descriptor, Deadline deadline);
  Descriptor receive_descriptor(Deadline deadline);

 private:
  void wait(short events, Deadline deadline) const;
  Descriptor socket_;
};

class DescriptorListener {
 public:
  DescriptorListener();  // Under a name nobody can guess. Throws Error(io).
  const std::string& name() const { return name_; }
  // The next process of the same user; others are turned away. Throws Error(timeout).
  DescriptorSocket accept(Deadline deadline);

 private:
  Descriptor socket_;
  std::string name_;
};

}  // namespace trireme::net
