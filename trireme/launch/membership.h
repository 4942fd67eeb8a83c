// The membership service's rules as a pure state machine: no sockets, no clocks, no threads.
//
// It is told what happened and answers with the messages to send. launch/coordinator.h feeds it
// from control connections.
#pragma once
#include <trireme/base/error.h>
#include <trireme/base/json.h>
#include <trireme/launch/notices.h>
#include <trireme/launch/phase.h>
#include <trireme/launch/stragglers.h>
#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace trireme::launch {

struct MembershipOptions {
  int workers = 1;
  std::chrono::milliseconds join_timeout{60000};  // From the first event until all have joined.
  std::chrono::milliseconds heartbeat_timeout{
      10000};                                      // A worker that is silent for longer is lost.
  std::chrono::milliseconds stall_timeout{10000};  // Others wait for a worker so long: it stalls.
  StragglerOptions straggler;
  int generation = 0;  // Messages of any other are refused.
};

struct LostWorker {
  int worker = -1;  // -1: not a worker but the coordinator.
  std::string host;
  int pid = 0;
  PhaseAt last;
  std::string reason;  // "connection closed", "silent for 10.2 s", "killed by signal 9 (SIGKILL)"
  std::string circumstances;  // Since when it was there, and who waits for it where (notices.h);
                              // may be empty.
  // "worker 1 (host b, pid 4711) was lost in backward of step 40: connection closed; it had been
  // there for ..."
  std::string describe() const;
};

// An Error as it travels in a message.
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
  std::map<std::string, std::string> must_agree;  // Equal on all workers, or nobody starts.
  std::chrono::steady_clock::time_point deadline = std::chrono::steady_clock::time_point::max();
};

// One generation of one job. A worker is absent, then joined, then either left (it said goodbye) or
// lost. The first lost worker ends the generation: all are told, and every wait ends, now and
// later.
class Membership {
 public:
  using Time = std::chrono::steady_clock::time_point;
  struct Outgoing {
    static constexpr int kSender =
        -1;  // To whom the call came from: a refused joiner is no worker.
    int to = kSender;
    Json message;
  };
  using Messages = std::vector<Outgoing>;

  explicit Membership(MembershipOptions options);
  ~Membership();
  Membership(const Membership&) = delete;

  // A message to kSender means that the joiner was refused. Once all have joined, all are told.
  Messages join(const JoinRequest& request, Time now);
  void heard(int worker, Time now);  // Any message is a sign of life.
  void beat(int worker, const PhaseNow& phase, Time now);
  void see(int worker, const PhaseNow& phase,
           Time now);  // The same, seen from outside: no sign of life.
  // Stalls and stragglers that were found since the last call.
  std::vector<Notice> take_notices() { return std::exchange(notices_, {}); }
  // {"phases": [{rank, steps, waiting, data, forward, ...}], "stragglers": [...]}: means of a step
  // in seconds.
  Json times();  // At the end of a run: also a straggler that it was too short for is found then.
  Messages goodbye(int worker);
  // The worker's connection broke, or its process was seen to end. A worker that said goodbye
  // cannot be lost. For a worker that is lost already only the reason is replaced: who speaks later
  // has looked closer.
  Messages lost(int worker, const std::string& reason);
  // Answered when all have arrived with equal facts, or by a failure. `request` is the id of the
  // reply.
  Messages agree(int worker, int64_t request, const std::string& what,
                 const std::map<std::string, std::string>& facts, Time now, Time deadline);
  Messages barrier(int worker, int64_t request, const std::string& name, Time now, Time deadline);
  // Notices what did not happen: join time-out, silence, deadlines of waits. Call it often.
  Messages tick(Time now);

  // Why a message of that generation is refused, if it is.
  std::optional<Failure> refuse_generation(int generation) const;
  // Why it is in vain for this worker to wait for others, if it is: one is lost, or nobody is left.
  std::optional<Failure> nobody_to_wait_for(int worker) const;
  PhaseAt last_phase(int worker) const;
  bool said_goodbye(int worker) const;
  bool any_step_finished() const;  // Some worker was seen in the second step or later.
  bool anyone_present() const;     // Joined, and neither left nor lost.
  const std::optional<LostWorker>& first_lost() const { return first_lost_; }
  std::vector<LostWorker> take_lost() {
    return std::exchange(lost_, {});
  }  // All of them, since the last call.

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
  Messages start();                       // All have joined.
  Messages never_start(Failure failure);  // Refuses all who have joined, and all who will.
  Messages expire_join(Time now);
  void look_around(Time now);
  void tell(const std::vector<Straggler>& stragglers);
  WorkerNow now_of(int worker) const;
  std::vector<WorkerNow> present_but(int worker) const;  // -1: all.
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
  std::optional<Failure> ended_;  // Why this generation is over.
  std::optional<LostWorker> first_lost_;
  std::vector<LostWorker> lost_;
  Time latest_;  // That anybody spoke of.
  Stalls stalls_;
  Stragglers stragglers_;
  std::vector<Notice> notices_;
  bool lost_by_silence_ = false;  // first_lost_ was.
  std::string last_refusal_;      // Of a joiner: it may explain who is missing.
  int64_t furthest_step_ = -1;
};

}  // namespace trireme::launch
