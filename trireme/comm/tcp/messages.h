// Messages between two ranks, told apart by tags: moved by one thread of their own, so that whoever
// sends and receives at once need not care in which order. It starts with the first message and
// sleeps while there is none.
//
// A message that nobody waits for stays in the connection; only if a receive with another tag is
// waiting behind it is it set aside in memory.
#pragma once
#include <trireme/comm/group.h>
#include <trireme/comm/losses.h>
#include <trireme/comm/tcp/link.h>
#include <condition_variable>
#include <deque>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

namespace trireme::comm {

class Messages {
 public:
  Messages(std::vector<Descriptor> connections, std::shared_ptr<const Losses> losses);
  ~Messages();
  Messages(const Messages&) = delete;
  Messages& operator=(const Messages&) = delete;

  // Any thread. A send is finished when the system has taken its last byte.
  WorkPtr send(at::Tensor tensor, int to, int tag);
  WorkPtr receive(at::Tensor tensor, int from, int tag);
  // Both ends' messages over this connection end in an error.
  void drop(int peer);

 private:
  struct Header {
    int64_t bytes = 0;
    int32_t type = 0;  // at::ScalarType
    int32_t tag = 0;
  };
  struct Delivery;
  struct Letter;
  struct Lane;
  struct Mailroom;
  class DeliveryWork;

  std::shared_ptr<Mailroom> mailroom_;
};

}  // namespace trireme::comm
