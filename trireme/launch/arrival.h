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
  // Returns once the coordinator knows of it: the generation before may be left then. Where the
  // coordinator does not answer, who stands by for it in `former`, the generation this process
  // comes from, is tried in order of worker numbers. With `lookup`, whom etcd names at each try
  // goes before all of these; a process without `former` needs no `coordinator` then. Throws
  // Error(timeout | peer_lost), Error(invalid_argument) naming the first of `facts` in which this
  // process differs from the job, which goes on without it.
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
  // Until the next generation has formed; empty if it does without this process. Throws
  // NoGeneration (peer_lost) when none can form, Error(peer_lost) when the coordinator is lost,
  // Error(timeout), Error(invalid_argument) as above.
  std::optional<Place> wait(Deadline deadline);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace trireme::launch
