// A worker's side of the rendezvous: join, comparisons, key-value store, heartbeats, lost workers,
// goodbye.
#pragma once
#include <trireme/base/deadline.h>
#include <trireme/membership/event_queue.h>
#include <trireme/membership/membership.h>
#include <trireme/membership/task_view.h>
#include <trireme/monitor/events.h>
#include <trireme/net/control.h>
#include <trireme/watch/phase_page.h>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace trireme::membership {

struct MemberOptions {
  Milliseconds timeout{60000};               // The limit of every wait below.
  Milliseconds heartbeat_interval{200};      // The next beat tells a change of phase.
  std::shared_ptr<watch::PhasePage> phases;  // The page that beats tell; null: a page of its own.
  // The events that heartbeats take along. A process of an elastic job gives the same queue to its
  // member of the next generation. Null: a queue of its own.
  std::shared_ptr<EventQueue> events = {};
  // Called while the member connects. Throws if the coordinator will never answer at its address.
  std::function<void()> throw_if_hopeless = {};
};

struct Peer {
  int worker = 0;
  std::string host;     // Host name.
  std::string address;  // The one that the coordinator sees, for backends between hosts.
  int pid = 0;
};

// Several threads may call at once. Every call below ends: with its result, with Error(timeout)
// naming the wait and the missing workers, or with Error(peer_lost).
class Member {
 public:
  // COLLECTIVE. Connects to the coordinator and waits until all workers have joined with the same
  // Trireme version and the same number of replicas per worker. Throws Error(timeout) naming the
  // missing workers, Error(invalid_argument) naming two workers and the values that differ.
  Member(const net::Endpoint& coordinator, const std::string& token, int worker, int workers,
         int generation, std::map<std::string, std::string> must_agree,
         MemberOptions options = {});
  // Joins as a side task (roles.h), without waiting for others. It is no worker: agree(),
  // barrier() and the calls about generations throw Error(invalid_argument). A lost worker does
  // not end its waits in an elastic job. Throws Error(invalid_argument) if the job has no such
  // task, another process has it, or the first of `must_agree` in which the task differs from
  // others.
  Member(const net::Endpoint& coordinator, const std::string& token, const Task& task,
         std::map<std::string, std::string> must_agree, MemberOptions options = {});
  ~Member();  // Does not say goodbye: a worker that exits without leave() counts as lost.

  const std::vector<Peer>& peers() const;  // All workers, by number.

  // COLLECTIVE. Compares `facts` over all workers; `what` names the comparison ("configuration",
  // "model"). Throws Error(invalid_argument) on every worker if they differ. The error names two
  // workers, the first key that differs and both values.
  void agree(const std::string& what, const std::map<std::string, std::string>& facts);
  // COLLECTIVE. Returns when every worker has arrived. Uses the control connection.
  void barrier(const std::string& name);

  // The job's key-value store; its values are bytes. Calls that wait end in Error(timeout) or
  // Error(peer_lost).
  void set(const std::string& key, const std::string& value);
  std::string get(const std::string& key, Deadline deadline);  // Waits until the key is set.
  std::optional<std::string> find(const std::string& key);     // Does not wait.
  // Adds to the value, a decimal text that starts at 0. Returns the sum.
  int64_t add(const std::string& key, int64_t amount);
  std::string compare_set(const std::string& key, const std::string& expected,
                          const std::string& desired);
  bool erase(const std::string& key);
  int64_t count_keys();

  watch::PhasePage& phases();  // The page that tells what this worker is doing.
  // The lost worker that ended this generation, once the coordinator has told it, or the
  // coordinator itself if it was lost. Cheap; any thread.
  std::optional<LostWorker> lost() const;
  bool is_lost() const;  // Whether this generation has ended; costs one atomic load.
  // Throws Error(peer_lost) if lost(); the message names worker, host, phase and reason. Throws
  // Error(invalid_argument) on every worker if they wait for each other for ever, because one has
  // left or called another operation; the message names it.
  void throw_if_lost() const;

  // For jobs with several roles. Any thread.
  // The tasks of this role that are there, by index. The workers of a generation are there once
  // all have joined. Throws Error(not_found) naming the job's roles if it has no such role.
  std::vector<TaskPeer> task_peers(const std::string& role) const;
  // Waits until all tasks of the role are there. Throws Error(timeout) naming those that are
  // missing, and the reason if they were lost.
  std::vector<TaskPeer> wait_for(const std::string& role, Deadline deadline) const;
  // The side tasks that were lost since this Member joined, or before and are still missing; the
  // oldest first. A side task also learns of the first lost worker of each generation.
  std::vector<LostTask> lost_tasks() const;
  // Whether all workers have ended: this side task is to end too. Its launcher also sends SIGTERM.
  // Throws Error(peer_lost) in a side task that has lost the coordinator: for the others it is
  // lost too, and only another process can have its task.
  bool finish_wanted() const;

  // For elastic jobs.
  int generation() const;
  // True if all members must arrive for the next generation after this step. Cheap; any thread.
  bool regroup_wanted() const;
  // Tells that the first step of this generation is committed, with `facts` for the job's history.
  void tell_first_step(int64_t step, const Json& facts = Json::object());
  Json generations();  // The history (generations.h).

  // Tells the launcher of an event with one of the next heartbeats. Never waits; any thread.
  // Events that come faster than heartbeats can carry are dropped and counted (event_queue.h).
  void tell_event(monitor::Told told);
  // Sends the events that wait for a heartbeat. Does not wait until they have arrived.
  void send_events();

  Json times();  // The times of all workers, and the stragglers (Membership::times).

  // The CPU time of the process that runs the coordinator, for reports.
  double coordinator_cpu_seconds();
  // Says goodbye and closes the connection. Workers that are lost later do not matter to this one.
  void leave();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace trireme::membership
