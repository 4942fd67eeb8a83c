// Messages between two ranks, distinguished by tags. A thread of their own moves them, so that a
// rank may send and receive at once in any order. The thread starts with the first message, and
// sleeps while there is none.
//
// A message without a receive stays in the connection. It is set aside in memory only if a receive
// with another tag waits behind it.
#pragma once
#include <trireme/comm/group.h>
#include <trireme/comm/message_form.h>
#include <trireme/comm/tcp/link.h>
#include <trireme/comm/wait_limits.h>
#include <memory>
#include <vector>

namespace trireme::comm {

class Messages {
 public:
  Messages(std::vector<Descriptor> connections, std::shared_ptr<const WaitLimits> limits);
  ~Messages();
  Messages(const Messages&) = delete;
  Messages& operator=(const Messages&) = delete;

  // Any thread. A send is finished when the operating system has taken its last byte.
  WorkPtr send(at::Tensor tensor, int to, int tag);
  WorkPtr receive(at::Tensor tensor, int from, int tag);
  // Makes both ends' messages over this connection end in an error.
  void drop(int peer);

 private:
  struct Header {
    int64_t bytes = 0;
    int32_t type = 0;  // at::ScalarType
    int32_t tag = 0;
    MessageForm form() const { return {bytes, type}; }
  };
  struct Delivery;
  struct Letter;
  struct Lane;
  struct Mailroom;
  class DeliveryWork;

  std::shared_ptr<Mailroom> mailroom_;
};

}  // namespace trireme::comm
