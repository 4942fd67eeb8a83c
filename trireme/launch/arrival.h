// A process of an elastic job between two generations: it tells the coordinator that it is there,
// and is told its place.
#pragma once
#include <trireme/base/deadline.h>
#include <trireme/base/error.h>
#include <trireme/launch/former.h>
#include <trireme/launch/lookup.h>
#include <trireme/net/control.h>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>

namespace trireme::launch {

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
    int64_t step = -1;   // Committed steps that this process has the state of; -1: none.
    std::string reason;  // Why it gave a step up; empty if it did not.
    // Where this process stands by as a coordinator, told once it is known by which address the
    // others can reach it.
    std::function<net::Endpoint(const std::string& own_address)> standby;
    std::map<std::string, std::string> facts = {};  // What all members must have alike.
  };
  // Returns once the coordinator knows of it: the generation before may be left then. A process
  // that comes from a generation (`former`) and finds that the coordinator is gone goes to the
  // oldest of that generation's processes that is not gone: that one takes over. With several nodes
  // and without `lookup` none takes over: NoGeneration is thrown. With `lookup`, etcd is asked at
  // each try and its answer goes before all of these; a process without `former` needs no
  // `coordinator` then. Throws Error(timeout | peer_lost), and Error(invalid_argument) naming the
  // first of `facts` in which this process differs from the job; the job continues without it.
  Arrival(const net::Endpoint& coordinator, const std::string& token, const Newcomer& who,
          const std::optional<Former>& former, Deadline deadline,
          CoordinatorLookup* lookup = nullptr);
  ~Arrival();  // Before the generation is joined (member.h), or the next one arrived for: a loss.

  struct Place {
    int generation = 0, worker = 0, workers = 1;
    int64_t step = -1;  // Committed steps that worker 0 has the state of.
    std::string cause;
    Former former;  // What it will be called when it is over.
  };
  const net::Endpoint& coordinator() const;  // The one that answered.
  // Throws Error(peer_lost) once the coordinator has closed the connection: it is lost, or does
  // without this process.
  void throw_if_closed() const;
  // Until the next generation has formed; empty if it does without this process. Throws
  // NoGeneration when none can form, Error(peer_lost) when the coordinator is lost,
  // Error(timeout), Error(invalid_argument) as above.
  std::optional<Place> wait(Deadline deadline);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace trireme::launch
