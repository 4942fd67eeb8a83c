// A coordinator's hold on the name of its job in etcd. The coordinator publishes its address under
// that name. While it holds the name, no other process may coordinate the job.
//
// The name is a key under a lease. Etcd deletes the key when the lease was not renewed in time.
// The holder measures the lease by its own steady clock, from the moment before it asked for it,
// and takes it for shorter than etcd does. So the holder stops before another can begin (Gray and
// Cheriton 1989, Leases).
#pragma once
#include <trireme/base/deadline.h>
#include <trireme/membership/lookup.h>
#include <trireme/net/etcd_url.h>
#include <functional>
#include <memory>
#include <stop_token>
#include <string>

namespace trireme::membership {

struct ClaimTimes {
  std::chrono::seconds lease{5};
  Milliseconds margin{1000};  // The holder takes a lease for over this much earlier than etcd.
  Milliseconds renewal{1000};
};

class Claim {
 public:
  using Time = Deadline::Clock::time_point;
  enum class For {
    // Takes the name only when it is free: the workers of a lost holder may still live.
    new_job,
    // Also takes the name from a coordinator that is gone: nothing listens at its address.
    successor,
  };
  // The claim calls these on its own thread. Ignore them once stop is requested.
  struct Events {
    // The name is held now, and until `until` if no other event comes.
    std::function<void(const std::stop_token&, Time until)> held;
    // The coordinator at this address has the name. The claim is over.
    std::function<void(const std::stop_token&, const std::string&)> taken;
  };

  // Begins to ask for the name on behalf of the coordinator that listens at `self`, and renews it
  // from then on.
  Claim(net::EtcdUrl where, const net::Endpoint& self, std::string token, For whom, Events events,
        ClaimTimes times = {});
  ~Claim();  // Stops asking. A name that is held stays until its lease runs out.
  // Returns once the name is held. If etcd does not answer, the claim asks again for `patience`.
  // Throws Error(invalid_argument) naming the coordinator that has the name, Error(timeout) if
  // etcd does not answer, Error(aborted) if stop_asked() is true.
  void wait_until_held(Milliseconds patience = Milliseconds(10000),
                       const StopAsked& stop_asked = {});
  void stop();  // Requests the stop that the events carry. Does not wait.
  // Gives the name back, if it is held, and waits for that until the deadline. If this fails, the
  // name stays until its lease runs out.
  void withdraw(Deadline deadline);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace trireme::membership
