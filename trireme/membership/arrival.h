// A process of an elastic job between two generations: it reports to the coordinator and gets its
// place in the next generation.
#pragma once
#include <trireme/base/deadline.h>
#include <trireme/base/error.h>
#include <trireme/membership/former.h>
#include <trireme/membership/lookup.h>
#include <trireme/net/control.h>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace trireme::membership {

// No generation can form any more, with or without this process.
class NoGeneration : public Error {
 public:
  using Error::Error;
  explicit NoGeneration(const Error& error) : Error(error) {}
};

class Arrival {
 public:
  struct Newcomer {
    int64_t process = 0;
    int64_t step = -1;   // The committed steps of this process's state; -1: it has no state.
    std::string reason;  // The reason why it gave a step up; empty if it did not.
    // Returns the address at which this process stands by as a coordinator. It is called with the
    // address by which the others can reach this process.
    std::function<net::Endpoint(const std::string& own_address)> standby;
    std::map<std::string, std::string> facts = {};  // The facts that all members must agree on.
  };
  // Returns once the coordinator knows of this process, which may then leave its old generation. A
  // process that comes from a generation (`former`) may find its coordinator gone. It then goes to
  // the oldest process of that generation that is not gone, which takes over. With several nodes
  // and without `lookup` no process takes over, and NoGeneration is thrown. With `lookup`, each
  // try asks etcd, whose answer takes precedence; a process without `former` then needs no
  // `coordinator`. Throws Error(timeout | peer_lost), and Error(invalid_argument) naming the first
  // of `facts` in which this process differs from the job; the job continues without it.
  Arrival(const net::Endpoint& coordinator, const std::string& token, const Newcomer& who,
          const std::optional<Former>& former, Deadline deadline,
          CoordinatorLookup* lookup = nullptr);
  // A process that destroys this object before it has joined the generation (member.h), or has
  // arrived for the next one, is lost.
  ~Arrival();

  struct Place {
    int generation = 0, worker = 0, workers = 1;
    int64_t step = -1;  // The committed steps of the newest state; without units, of worker 0's.
    std::string cause;
    // With units, the committed steps of each worker's state; -1: it has none.
    std::vector<int64_t> steps;
    Former former;  // The description of this generation, for the next arrival.
  };
  const net::Endpoint& coordinator() const;  // The coordinator that answered.
  // Throws Error(peer_lost) once the coordinator has closed the connection: it is lost, or
  // continues without this process.
  void throw_if_closed() const;
  // Waits until the next generation has formed. Calls `look` ten times a second meanwhile. Returns
  // nothing if this process is not needed in the generation. Throws NoGeneration when none can
  // form, Error(peer_lost) when the coordinator is lost, Error(timeout), Error(invalid_argument)
  // as above.
  std::optional<Place> wait(Deadline deadline, const std::function<void()>& look = {});

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace trireme::membership
