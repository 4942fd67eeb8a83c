// Finds the coordinator of a job that is published in etcd (claim.h), also one that took over.
#pragma once
#include <trireme/base/deadline.h>
#include <trireme/net/etcd.h>
#include <trireme/net/etcd_url.h>
#include <functional>
#include <optional>
#include <string>

namespace trireme::launch {

// The key that holds the coordinator's address.
std::string coordinator_key(const std::string& job);

// Whether a wait shall end now, as somebody asked this process to stop. May be empty.
using StopAsked = std::function<bool()>;

// The address of this host by which it reaches etcd, which is asked again for so long. Throws
// Error(timeout) naming each server and what was wrong with it if none answers, Error(aborted).
std::string address_towards(const net::EtcdUrl& where, Milliseconds patience,
                            const StopAsked& stop_asked = {});
// Throws Error(aborted) if it is asked to stop.
void check_stop(const StopAsked& stop_asked);

// Not for several threads at once.
class CoordinatorLookup {
 public:
  explicit CoordinatorLookup(net::EtcdUrl where);

  // Whom etcd names now. Empty if it names nobody, or does not answer: that is remembered for
  // wait()'s message. Takes 2 s at most.
  std::optional<net::Endpoint> now();
  // Whom etcd names once somebody of a job listens there: its token may be another one, which who
  // connects is told. Asks anew until the deadline. Throws Error(timeout) with etcd's address, the
  // key, and what was wrong last.
  net::Endpoint wait(const std::string& token, Deadline deadline);

 private:
  const net::EtcdUrl where_;
  net::Etcd etcd_;
  std::string wrong_, remedy_;  // With the last try.
};

}  // namespace trireme::launch
