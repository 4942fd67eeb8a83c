// Runs the rounds of one operation: it moves their bytes over all connections at once, after every
// rank has announced its call. An operation ends only when the calls of all ranks have arrived and
// are equal, so that no call goes unnoticed.
#pragma once
#include <trireme/base/deadline.h>
#include <trireme/comm/tcp/call.h>
#include <trireme/comm/tcp/round.h>
#include <trireme/comm/wait_limits.h>
#include <functional>
#include <string>
#include <vector>

namespace trireme::comm {

class RoundRunner {
 public:
  // Queues `call` for every peer. `links`: [rank]; this rank's own is unused. `spin` says that
  // there are enough cores to wait briefly for the next bytes without sleeping; the runner stops
  // spinning if they take longer.
  RoundRunner(std::vector<Link>& links, int rank, const WaitLimits& limits, bool spin,
              const Call& call);
  ~RoundRunner();
  RoundRunner(const RoundRunner&) = delete;
  RoundRunner& operator=(const RoundRunner&) = delete;

  // Both throw Error(invalid_argument) naming two ranks and their calls if these differ,
  // Error(timeout) naming the ranks that are late, or Error(peer_lost). The connections are
  // unusable after that.
  void run(Round& round);
  // Waits until all calls have arrived and are equal, and this rank's call has been sent.
  void finish();

 private:
  struct Peer {
    Call call;  // The peer's call, once it has arrived.
    Incoming incoming;
    Outgoing outgoing;
    bool compared;
    bool readable = true, writable = true;  // False: a call on the socket would wait.
  };
  bool others_are_done() const;
  void advance_until(const std::function<bool()>& done, Round* round);
  bool step(Round* round);
  bool move_bytes(int peer);
  void compare_calls();
  [[noreturn]] void disagree(int peer);
  void wait_for_sockets();
  std::string missing() const;

  std::vector<Link>& links_;
  const int rank_;
  const WaitLimits& limits_;
  bool spin_;
  const Call call_;
  const Deadline deadline_;
  std::vector<Peer> peers_;
  int uncompared_ = 0;
  int spins_in_vain_ = 0;
};

}  // namespace trireme::comm
