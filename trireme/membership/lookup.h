// Finds the coordinator of a job that etcd names (claim.h), also after another one took over.
#pragma once
#include <trireme/base/deadline.h>
#include <trireme/net/etcd.h>
#include <trireme/net/etcd_url.h>
#include <functional>
#include <optional>
#include <string>

namespace trireme::membership {

// The key that holds the coordinator's address.
std::string coordinator_key(const std::string& job);

// Returns true if a wait must end now because this process was asked to stop. It may be empty.
using StopAsked = std::function<bool()>;

// Returns the address of this host on its connection to etcd. It asks etcd again for `patience`.
// Throws Error(timeout) naming each server and its failure if none answers, Error(aborted) if
// stop_asked() is true.
std::string address_towards(const net::EtcdUrl& where, Milliseconds patience,
                            const StopAsked& stop_asked = {});
// Throws Error(aborted) if stop_asked() is true.
void check_stop(const StopAsked& stop_asked);

// One thread at a time may use an object.
class CoordinatorLookup {
 public:
  explicit CoordinatorLookup(net::EtcdUrl where);

  // Returns the coordinator that etcd names now. The result is empty if etcd names none or does
  // not answer; the message of wait() then tells the reason. Takes 2 s at most.
  std::optional<net::Endpoint> now();
  // Returns the coordinator that etcd names once it listens there. It may use another job token; a
  // connection to it reports that. Asks again until the deadline. Throws Error(timeout) with
  // etcd's address, the key, and the last failure, Error(aborted) within 3 s once stop_asked() is
  // true.
  net::Endpoint wait(const std::string& token, Deadline deadline,
                     const StopAsked& stop_asked = {});

 private:
  const net::EtcdUrl where_;
  net::Etcd etcd_;
  std::string wrong_, remedy_;  // The failure of the last try.
};

}  // namespace trireme::membership
