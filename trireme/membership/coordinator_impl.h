// The inside of the coordinator. Its parts: coordinator.cc is what callers see,
// coordinator_messages.cc handles what workers say, coordinator_tasks.cc what side tasks and other
// launchers say, and coordinator_takeover.cc the change of the coordinator.
#pragma once
#include <trireme/membership/claim.h>
#include <trireme/membership/coordinator.h>
#include <trireme/membership/event_queue.h>
#include <trireme/membership/generations.h>
#include <trireme/membership/key_value_store.h>
#include <trireme/membership/protocol.h>
#include <trireme/membership/side_tasks.h>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <unordered_map>
#include <unordered_set>
#include <vector>

namespace trireme::membership {

// Some seconds of the events of a large job. A worker that coordinates keeps them for nobody.
inline constexpr size_t kMostEvents = 4096;

struct Coordinator::Impl {
  using Clock = std::chrono::steady_clock;

  Impl(const MembershipOptions& membership_options, const std::optional<RosterOptions>& elastic,
       LookAt look_at, const Roles& roles)
      : options(membership_options),
        look(std::move(look_at)),
        membership(std::make_unique<Membership>(membership_options)),
        side_tasks(roles, membership_options.heartbeat_timeout) {
    if (elastic) generations.emplace(*elastic, actions());
  }

  net::ServerEvents events();
  void receive(net::ConnectionId connection, const Json& message);
  Membership::Messages handle(net::ConnectionId connection, const Json& message,
                              Clock::time_point now);
  Membership::Messages join(net::ConnectionId connection, const Json& message,
                            Clock::time_point now);
  std::optional<Failure> refuse_worker(const JoinRequest& request) const;
  void end(net::ConnectionId connection, const std::string& reason);
  bool anyone_left() const;
  std::optional<Failure> nobody_to_wait_for(int asker) const;
  void deliver(const Membership::Messages& messages, net::ConnectionId sender = 0);
  Generations::Actions actions();
  void take_over(const Former& former, Clock::time_point now);
  void give_up();
  void claim(Claim::For whom);
  void superseded_by(const std::string& other);
  void look_for_the_missing(const std::stop_token& stop, int generation);
  bool of_operator(net::ConnectionId connection, const Json& message, Clock::time_point now);
  bool of_generations(net::ConnectionId connection, const Json& message, Clock::time_point now);
  void note_lost_workers(Clock::time_point now, LostProcess how = {});
  void look_at_all(Clock::time_point now);

  // coordinator_tasks.cc
  bool of_side_tasks(net::ConnectionId connection, const Json& message, Clock::time_point now);
  void join_task(net::ConnectionId connection, const Json& message, Clock::time_point now);
  void from_task(int number, const Json& message, Clock::time_point now);
  void lose_task(int number, const std::string& reason);
  void tick_tasks(Clock::time_point now);
  void tell_of_task(int number);
  void tell_tasks_of_workers();
  void send_to_tasks(Json message);

  Json regroup_message() const { return {{"op", "regroup"}, {"generation", options.generation}}; }

  MembershipOptions options;  // The options of the current generation.
  const LookAt look;          // It may be empty.
  std::mutex mutex;           // Guards the members below.
  std::condition_variable changed;
  std::unique_ptr<Membership> membership;  // The rules of the current generation.
  std::optional<Generations> generations;  // Only elastic jobs have it.
  SideTasks side_tasks;
  // The launchers of other nodes that watch for the job's end: whether their workers have ended.
  std::map<net::ConnectionId, bool> watchers;
  bool is_finished = false;                     // The side tasks were told to end.
  int told_of_workers = -2, told_of_loss = -2;  // The generations of which side tasks know this.
  std::vector<int> lost_tasks;  // The side tasks that were lost since take_lost_tasks().
  KeyValueStore store;
  std::unordered_map<net::ConnectionId, std::string> peers;  // The addresses of all connections.
  std::unordered_map<net::ConnectionId, net::Purpose> purposes;
  // The workers that have joined, and the side tasks, from kFirstSideTask on.
  std::unordered_map<net::ConnectionId, int> worker_of;
  std::unordered_map<int, net::ConnectionId> connection_of;
  // The connections of workers of earlier generations, which may still send something.
  std::unordered_set<net::ConnectionId> of_earlier_generations;
  bool any_step_finished = false;  // A step was finished in an earlier generation.
  bool members_were_stopped = false;
  EventQueue events_told{kMostEvents};
  std::string token;
  bool stands_by = false;
  std::optional<net::EtcdUrl> etcd;  // Decides which process coordinates.
  bool superseded = false;  // Another coordinator took over, and this one does not stand by.
  std::unique_ptr<net::ControlServer> server;
  std::vector<std::jthread> probers;           // They use all of the above.
  std::vector<std::unique_ptr<Claim>> claims;  // They use them too. Only the last one counts.
};

}  // namespace trireme::membership
