// One operation of a group under way: moves the bytes of its rounds over all connections at once,
// after every rank has said what it calls. No call of a rank goes unheard: an operation ends only
// when those of all ranks have come and are equal.
#pragma once
#include <trireme/base/deadline.h>
#include <trireme/comm/losses.h>
#include <trireme/comm/tcp/call.h>
#include <trireme/comm/tcp/round.h>
#include <functional>
#include <string>
#include <vector>

namespace trireme::comm {

class Exchange {
 public:
  // Queues `call` for every peer. `links` by rank, this rank's own unused. `spin`: there are cores
  // enough to wait for the next bytes without sleeping, for a moment; given up where they take
  // longer than that.
  Exchange(std::vector<Link>& links, int rank, const Losses& losses, bool spin, const Call& call);
  ~Exchange();
  Exchange(const Exchange&) = delete;
  Exchange& operator=(const Exchange&) = delete;

  // Throw Error(invalid_argument) naming two ranks and what each calls, if they differ;
  // Error(timeout) naming the ranks that were waited for; Error(peer_lost). The connections are of
  // no more use then.
  void run(Round& round);
  void finish();  // All calls have come and are equal, and this rank's has gone out.

 private:
  struct Peer {
    Call call;  // Theirs, once it has come.
    Incoming incoming;
    Outgoing outgoing;
    bool compared;
    bool readable = true, writable = true;  // As far as is known.
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
  const Losses& losses_;
  bool spin_;
  const Call call_;
  const Deadline deadline_;
  std::vector<Peer> peers_;
  int uncompared_ = 0;
  int spins_in_vain_ = 0;
};

}  // namespace trireme::comm
