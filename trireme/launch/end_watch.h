// The link of a launcher without the coordinator to the coordinator, in a job with side tasks:
// side tasks of one node serve the workers of all nodes, and must not end before them.
#pragma once
#include <trireme/base/deadline.h>
#include <trireme/net/etcd_url.h>
#include <trireme/net/message.h>
#include <atomic>
#include <optional>
#include <string>
#include <thread>

namespace trireme::launch {

class EndWatch {
 public:
  // Connects on a thread of its own, and gives up after `patience`.
  EndWatch(net::Endpoint coordinator, std::optional<net::EtcdUrl> etcd, std::string token,
           Milliseconds patience);
  // Tells that the workers of this launcher have ended well.
  void tell_ended() { ended_ = true; }
  // Whether the side tasks are to end: all workers of the job have ended, or there is no
  // coordinator any more.
  bool is_over() const { return over_; }

 private:
  void watch(const std::stop_token& stop);

  const net::Endpoint coordinator_;
  const std::optional<net::EtcdUrl> etcd_;
  const std::string token_;
  const Milliseconds patience_;
  std::atomic<bool> ended_{false}, over_{false};
  std::jthread thread_;  // The last: it uses all of the above.
};

}  // namespace trireme::launch
