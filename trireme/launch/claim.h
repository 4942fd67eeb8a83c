// A coordinator's hold on the name of its job in etcd: there it says where it listens, and while it
// holds the name no other may coordinate the job.
//
// The name is a key under a lease, which etcd forgets a while after its last renewal, and with it
// the key. Who holds it counts the lease from before it asked for it, by a clock of its own that
// never goes back, and shorter than etcd does: so the holder stops before another can begin (Gray
// and Cheriton 1989, Leases).
#pragma once
#include <trireme/base/deadline.h>
#include <trireme/launch/lookup.h>
#include <trireme/net/etcd_url.h>
#include <functional>
#include <memory>
#include <stop_token>
#include <string>

namespace trireme::launch {

struct ClaimTimes {
  std::chrono::seconds lease{5};
  Milliseconds margin{1000};  // So much earlier than etcd its holder takes a lease for over.
  Milliseconds renewal{1000};
};

class Claim {
 public:
  using Time = Deadline::Clock::time_point;
  enum class For {
    new_job,  // Takes the name only when it is free: who had it may be gone, and its workers live.
    successor,  // Also from a coordinator that is known to be gone, as nobody listens at its
                // address any more.
  };
  // Called on the claim's own thread, and not to be heeded once stop is requested.
  struct Events {
    std::function<void(const std::stop_token&, Time until)>
        held;  // Now, and if nothing else comes until then.
    std::function<void(const std::stop_token&, const std::string&)>
        taken;  // Another one has it, at this address. The claim is over.
  };

  // Begins to ask for the name, for the coordinator that listens at `self`, and holds it from then
  // on as well as it can.
  Claim(net::EtcdUrl where, const net::Endpoint& self, std::string token, For whom, Events events,
        ClaimTimes times = {});
  ~Claim();  // Asks for nothing any more; a name that is held stays until its lease runs out.
  // Returns once the name is held. Etcd is asked again for so long, should it not answer. Throws
  // Error(invalid_argument) naming the coordinator that has the name; Error(timeout) if etcd does
  // not answer, Error(aborted) if it is asked to stop.
  void wait_until_held(Milliseconds patience = Milliseconds(10000),
                       const StopAsked& stop_asked = {});
  void stop();  // No word of it counts any more. Does not wait.
  // Gives the name back, if it is held. Waits for that until the deadline; what fails is left to
  // the lease.
  void withdraw(Deadline deadline);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace trireme::launch
