// The servers of a job as one worker reaches them: for the pieces of each server a chain of those
// that have them and are not lost. The first server of a chain answers pulls; the others have
// copies (docs/parameter_server.md).
#pragma once
#include <trireme/base/error.h>
#include <trireme/net/requests/request_client.h>
#include <trireme/parallel/servers/server_wire.h>
#include <trireme/plan/placement_plan.h>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace trireme {

// A process with the task of a server.
struct ServerPlace {
  // NOLINTNEXTLINE(google-explicit-constructor): an address alone is a place.
  ServerPlace(net::Endpoint at, int number = 1) : endpoint(std::move(at)), incarnation(number) {}
  net::Endpoint endpoint;
  int incarnation = 1;  // It counts the processes that have had the task.
};
using ServerPlaces = std::vector<std::optional<ServerPlace>>;  // [server]; empty: it is lost.

// Whether the job has lost this process of a server. One authority says so for all workers, so
// that they agree on the first server of each chain.
using IsServerLost = std::function<bool(int server, int incarnation)>;
// The task and the reason for messages: "ps 1 on host b (pid 12) was killed by signal 9". May be
// null, and may return nothing.
using WhyServerLost = std::function<std::string(int server, int incarnation)>;

}  // namespace trireme

namespace trireme::servers {

// Used by one thread.
class ServerChains {
 public:
  // The pieces of server `shard` in the process of `server`.
  struct Link {
    int shard = 0, server = 0;
    int64_t version = -1;  // Of the parameters that this worker has from it; -1: none.
    int64_t told = -1;     // The newest decision that it is known to have.
  };
  using Chain = std::vector<Link>;  // Those that are left, in order.

  // Connects to all servers that have a place. Throws as net::RequestClient does, and
  // Error(peer_lost) if a chain has no server, or another job has the port of a server by now.
  ServerChains(plan::PlacementPlan placement, const ServerPlaces& places, std::string token,
               net::ChannelOptions channel, IsServerLost is_lost, WhyServerLost why_lost,
               std::function<void()> look, Deadline deadline);

  const plan::PlacementPlan& placement() const { return placement_; }
  int shards() const { return placement_.facts.servers; }
  bool has_copies() const { return placement_.facts.replication > 1; }
  Chain& chain(int shard) { return chains_[static_cast<size_t>(shard)]; }
  const Chain& chain(int shard) const { return chains_[static_cast<size_t>(shard)]; }
  Link& first(int shard) { return chain(shard).front(); }
  std::vector<Link*> firsts();  // Of all chains.
  std::vector<Link*> all();
  std::vector<Link*> all_but(const Link& one);
  std::vector<Link*> copies_of(int shard);
  std::vector<Link*> all_copies();
  std::vector<Link*> links_of(int server);

  // Sends each of them a request, and returns when all have answered, so that nothing is taken
  // unless all have answered and the same call can be made again. `places` are those of a reply.
  // Requests that ride (server_wire.h) are one message with another one to the same process, and
  // are carried out before it, in order.
  using Make = std::function<net::Message(const Link&)>;
  using Places = std::function<net::ChoosePlaces(const Link&)>;
  using Rides = std::function<bool(const Link&)>;
  std::vector<net::Reply> ask(const char* name, const std::vector<Link*>& whom, const Make& make,
                              const Places& places, Deadline deadline, const Rides& rides = {});

  // Calls `operation` again without the servers that are lost meanwhile. It must be one that can
  // be made again. Throws Error(peer_lost) if a chain has no server left.
  template <typename Operation>
  auto without_the_lost(Deadline deadline, const Operation& operation) {
    for (drop_those_that_the_job_lost();;) {
      try {
        return operation();
      } catch (const Unreachable& unreachable) {
        ++failures_;
        settle(unreachable, deadline);
      } catch (...) {
        ++failures_;
        throw;
      }
    }
  }
  int64_t failures() const { return failures_; }  // The tries of operations that failed.
  // In an operation: another worker has called the next server of the chain as the clock, so the
  // job has lost the one that this worker calls. Waits until this worker hears of it.
  [[noreturn]] void leave_deposed_clock() const;
  // In an operation that waits: the job may have lost the clock meanwhile.
  void require_clock();

  ServerPlaces in_use() const;
  // The servers that are not in use: they are lost, or have no state.
  std::vector<int> missing() const;
  bool is_lost(int server, const ServerPlace& place) const {
    return is_lost_ && is_lost_(server, place.incarnation);
  }
  // The connection to the process of a server that is in use.
  std::shared_ptr<net::RequestClient> client_of(int server) { return process(server).client; }
  // A process has the task of a missing server again.
  void adopt(int server, const ServerPlace& place, Deadline deadline);
  // It is in use no more. A chain may then have no server left, until another one is adopted.
  void drop(int server);
  // Throws Error(peer_lost) if a chain has no server left.
  void require_all_chains() const;
  // Whether each chain has another server than these.
  bool can_do_without(const std::set<int>& servers) const;

  bool has_lost_a_chain() const;

 private:
  struct Process {
    std::shared_ptr<net::RequestClient> client;  // Null: it is not in use.
    std::optional<ServerPlace> place;
  };
  // A call that this server did not answer, or that it alone could not carry out.
  struct Unreachable : Error {
    Unreachable(const Error& why, int number, bool it_answers)
        : Error(why), server(number), answers(it_answers) {}
    int server;
    // Its channel works; so the call failed because the job has lost it, or for good.
    bool answers;
  };
  // A message, and the places in `whom` of those that it is for. The last one is the main request.
  struct Ride {
    std::vector<size_t> members;
    net::Message message;
  };
  static std::vector<Ride> rides_of(const std::vector<Link*>& whom, const Make& make,
                                    const Rides& rides);
  Process& process(int server) { return processes_[static_cast<size_t>(server)]; }
  void connect(int server, Deadline deadline);
  void drop_those_that_the_job_lost();
  void settle(const Unreachable& unreachable, Deadline deadline);
  bool is_lost_for_the_job(int server);
  std::string describe_loss(int server) const;

  const plan::PlacementPlan placement_;
  const std::string token_;
  const net::ChannelOptions channel_;
  const IsServerLost is_lost_;
  const WhyServerLost why_lost_;
  const std::function<void()> look_;  // Throws if the job does not go on. It may be empty.
  int64_t failures_ = 0;
  std::vector<Process> processes_;  // [server]
  std::vector<Chain> chains_;       // [server whose pieces they are]
};

}  // namespace trireme::servers
