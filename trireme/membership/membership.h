// The membership rules of one generation: a pure state machine, no sockets, clocks or threads.
//
// Its calls report events and return the messages to send. The coordinator (coordinator.h) makes
// the calls when messages come on control connections.
#pragma once
#include <trireme/base/error.h>
#include <trireme/base/json.h>
#include <trireme/membership/notices.h>
#include <trireme/membership/roles.h>
#include <trireme/watch/phase.h>
#include <trireme/watch/stragglers.h>
#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace trireme::membership {

struct MembershipOptions {
  int workers = 1;
  std::chrono::milliseconds join_timeout{60000};  // From the first join until all have joined.
  // A worker that is silent for longer is lost.
  std::chrono::milliseconds heartbeat_timeout{10000};
  // A worker for which the others have waited this long stalls.
  std::chrono::milliseconds stall_timeout{10000};
  watch::StragglerOptions straggler;
  int generation = 0;  // Messages of other generations are refused.
};

struct LostWorker {
  int worker = -1;  // -1: the coordinator.
  std::string host;
  int pid = 0;
  PhaseAt last;
  std::string reason;  // "connection closed", "silent for 10.2 s", "killed by signal 9 (SIGKILL)"
  // The time for which it was there, and the workers that wait for it (notices.h); may be empty.
  std::string circumstances;
  std::optional<Task> task = {};  // Its task, if it is a side task.
  // "worker 1 (host b, pid 4711) was lost in backward of step 40: connection closed; it had been
  // there for ..."
  std::string describe() const;
};

// An Error as a message carries it.
struct Failure {
  ErrorCode code = ErrorCode::internal;
  std::string what;
  std::string remedy;
  Error error() const;
};

struct JoinRequest {
  int worker = 0;
  int workers = 1;
  int generation = 0;
  std::string host;
  std::string address;
  int pid = 0;
  std::map<std::string, std::string> must_agree;  // If it differs on a worker, no worker starts.
  std::chrono::steady_clock::time_point deadline = std::chrono::steady_clock::time_point::max();
};

// One generation of one job. A worker is absent, then joined, then either left (it said goodbye)
// or lost. The first lost worker ends the generation: all workers are told, and every wait ends,
// now and later. So do workers that wait for each other for ever (Stalls::find_deadlock).
class Membership {
 public:
  using Time = std::chrono::steady_clock::time_point;
  struct Outgoing {
    // The message goes to the sender of the request: a refused joiner is not a worker.
    static constexpr int kSender = -1;
    int to = kSender;
    Json message;
  };
  using Messages = std::vector<Outgoing>;

  explicit Membership(MembershipOptions options);
  ~Membership();
  Membership(const Membership&) = delete;

  // A message to kSender means that the joiner was refused. Once all have joined, all are told.
  Messages join(const JoinRequest& request, Time now);
  void heard(int worker, Time now);  // A message came from the worker: it lives.
  void beat(int worker, const PhaseNow& phase, Time now);
  // The launcher saw this phase on the worker's page. Unlike beat(), this is no sign of life.
  void see(int worker, const PhaseNow& phase, Time now);
  // Returns the stalls and stragglers that were found since the last call.
  std::vector<Notice> take_notices() { return std::exchange(notices_, {}); }
  // {"phases": [{rank, steps, waiting, data, forward, ...}], "stragglers": [...]} with the means
  // of a step in seconds. For the end of a run: it also finds stragglers of a run that was too
  // short for windows.
  Json times();
  Messages goodbye(int worker);
  // The worker's connection broke, or its process was seen to end. A worker that said goodbye
  // cannot be lost. If the worker is lost already, only the reason is replaced: a later report
  // knows more.
  Messages lost(int worker, const std::string& reason);
  // A side task was lost whose role ends the generation then, as a lost worker does.
  Messages lost_task(const LostWorker& task) { return end_by(task); }
  // The reply comes when all workers have arrived with equal facts, or it is a failure. `request`
  // is the id of the reply.
  Messages agree(int worker, int64_t request, const std::string& what,
                 const std::map<std::string, std::string>& facts, Time now, Time deadline);
  Messages barrier(int worker, int64_t request, const std::string& name, Time now, Time deadline);
  // Notices the join time-out, silence, and the deadlines of waits. Call it often.
  Messages tick(Time now);

  // Returns why a message of that generation is refused, if it is.
  std::optional<Failure> refuse_generation(int generation) const;
  // Returns why this worker must not wait for others, if so: one is lost, or no other is left.
  std::optional<Failure> nobody_to_wait_for(int worker) const;
  PhaseAt last_phase(int worker) const;
  bool said_goodbye(int worker) const;
  bool any_step_finished() const;  // A worker was seen in the second step or later.
  bool anyone_present() const;     // A worker has joined and has neither left nor been lost.
  bool has_started() const { return started_; }                   // All workers have joined.
  const std::optional<Failure>& ended() const { return ended_; }  // The reason, if it is over.
  const std::map<std::string, std::string>* facts_of_workers() const;  // Null: none has joined.
  Json peers() const;  // The workers, as the message `joined` tells them.
  const std::optional<LostWorker>& first_lost() const { return first_lost_; }
  // Returns the workers lost since the last call.
  std::vector<LostWorker> take_lost() { return std::exchange(lost_, {}); }

 private:
  enum class State { absent, joined, left, lost };
  struct Entry {
    State state = State::absent;
    JoinRequest request;
    PhaseNow last;
    Time heard;
  };

  std::optional<Failure> check_join(const JoinRequest& request) const;
  std::optional<Failure> differs_from_others(const JoinRequest& request) const;
  Messages start();  // All workers have joined.
  Messages end_by(const LostWorker& lost);
  Messages end_by_deadlock(Notice notice);
  Messages never_start(Failure failure);  // Refuses the joined workers and all later joiners.
  Messages expire_join(Time now);
  Messages look_around(Time now);
  void tell(const std::vector<watch::Straggler>& stragglers);
  WorkerNow now_of(int worker) const;
  std::vector<WorkerNow> present_but(int worker) const;
  std::vector<WorkerNow> in_place(State state) const;
  Messages meet(const std::string& where, int worker, int64_t request,
                std::map<std::string, std::string> facts, Time now, Time deadline);
  Messages to_present(const Json& message) const;
  std::vector<int> in_state(State state) const;
  bool all_joined() const;
  std::string name_of(int worker) const;
  const Entry& entry(int worker) const;
  Entry& entry(int worker);
  Failure left_failure(int worker, const std::string& where) const;

  const MembershipOptions options_;
  std::vector<Entry> workers_;
  std::unique_ptr<class Meetings> meetings_;
  bool started_ = false;
  std::optional<Time> first_join_;
  std::optional<Time> last_tick_;
  std::optional<Failure> ended_;  // The reason why this generation is over.
  std::optional<LostWorker> first_lost_;
  std::vector<LostWorker> lost_;
  Time latest_;  // The latest `now` of all calls.
  Stalls stalls_;
  watch::Stragglers stragglers_;
  std::vector<Notice> notices_;
  bool lost_by_silence_ = false;  // first_lost_ was lost because it was silent.
  std::string last_refusal_;      // The last refused join. It may explain a missing worker.
  int64_t furthest_step_ = -1;
};

}  // namespace trireme::membership
