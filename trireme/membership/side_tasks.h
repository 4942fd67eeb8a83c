// The side tasks of a job as the coordinator sees them: which are there, and what they have in
// common with the others. A pure state machine, no sockets, clocks or threads.
#pragma once
#include <trireme/base/json.h>
#include <trireme/membership/membership.h>
#include <trireme/membership/roles.h>
#include <trireme/watch/phase.h>
#include <chrono>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace trireme::membership {

// A process that has, or had, a task.
struct TaskPeer {
  Task task;
  std::string host;     // Host name.
  std::string address;  // The one that the coordinator sees.
  int pid = 0;
  int incarnation = 0;  // The processes that have had this task so far, with this one.
};

struct TaskRequest {
  Task task;
  std::string host;
  std::string address;
  int pid = 0;
  std::map<std::string, std::string> facts;
};

class SideTasks {
 public:
  using Time = std::chrono::steady_clock::time_point;
  enum class State { absent, present, left, lost };

  SideTasks(Roles roles, std::chrono::milliseconds heartbeat_timeout);

  const Roles& roles() const { return roles_; }
  // Returns why the process is refused: the job has no such task, another process has it, or it
  // differs from others in a fact that they must agree on. `workers` are the facts of a worker
  // that has joined, if one has.
  std::optional<Failure> join(const TaskRequest& request,
                              const std::map<std::string, std::string>* workers, Time now);
  // Returns why a worker with these facts is refused: it differs from a side task.
  std::optional<Failure> refuse_worker(const std::string& name,
                                       const std::map<std::string, std::string>& facts) const;
  void heard(int number, Time now);
  void beat(int number, const PhaseNow& phase, Time now);
  void goodbye(int number);
  // The connection of the task broke, or its process was seen to end. Returns the lost task if it
  // was there.
  std::optional<LostWorker> lost(int number, const std::string& reason);
  // A later report of the same lost task knows more, such as the signal. Returns whether it is
  // new.
  bool explain(int number, const std::string& reason);
  // Returns the tasks that have become silent, with the reasons. Call lost() for them.
  std::vector<std::pair<int, std::string>> tick(Time now);

  bool is_present(int number) const { return entry(number).state == State::present; }
  PhaseAt last_phase(int number) const { return entry(number).last.at; }
  int pid_of(int number) const { return entry(number).peer.pid; }
  // The message that tells the others of the task (protocol.h).
  Json message(int number) const;
  Json table() const;  // The messages of all tasks.

 private:
  struct Entry {
    State state = State::absent;
    TaskPeer peer;
    std::map<std::string, std::string> facts;
    PhaseNow last;
    Time heard;
    std::string reason;  // Why it was lost last.
  };
  using Side = std::pair<const std::string&, const std::map<std::string, std::string>&>;
  std::optional<Failure> difference(const std::string& role, Side one, const std::string& other,
                                    Side side) const;
  std::optional<Failure> difference_from_present(const std::string& role, Side one) const;
  const Entry& entry(int number) const { return entries_.at(static_cast<size_t>(number)); }
  Entry& entry(int number) { return entries_.at(static_cast<size_t>(number)); }

  Roles roles_;
  std::chrono::milliseconds heartbeat_timeout_;
  std::vector<Entry> entries_;  // By number.
  std::optional<Time> last_tick_;
};

}  // namespace trireme::membership
