// An elastic job as the coordinator sees it: which process is which worker of the current
// generation, which processes wait, and the history of the generations.
//
// One thread at a time may use an object.
#pragma once
#include <trireme/base/json.h>
#include <trireme/membership/former.h>
#include <trireme/membership/membership.h>
#include <trireme/membership/roster.h>
#include <trireme/net/control.h>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace trireme::membership {

// A process without which the job continues. The launcher ends it if it still lives, and starts
// another.
struct LostProcess {
  Roster::Process process = 0;
  std::string text;           // A line for people.
  std::string reason;         // LostWorker::reason; empty: `text` tells it.
  std::string circumstances;  // LostWorker::circumstances
  // Its connection closed: it may be about to end, with an exit code of its own.
  bool ending = false;
};

// A member that was lost.
struct LostMember {
  int worker = 0;             // Its number in the generation in which it was lost.
  std::string circumstances;  // LostWorker::circumstances
};

class Generations {
 public:
  using Time = Roster::Time;
  struct Actions {
    std::function<void(net::ConnectionId, Json)> answer;  // Sends to a process that waits.
    std::function<void(net::ConnectionId)> close;         // Closes after the answer was sent.
    // Replaces the Membership by one of the new generation.
    std::function<void(int generation, int workers)> start;
    // Declares a worker of the current generation lost.
    std::function<void(int worker, const std::string& reason)> lose;
    std::function<void()> interrupt;  // Tells the current generation's workers to regroup.
    std::function<Former()> rules;    // Returns this coordinator's address and its time-outs.
    // Whether this coordinator's own launcher started the process. If so, its facts are those of
    // the job.
    std::function<bool(Roster::Process)> is_own = [](Roster::Process) { return false; };
  };
  Generations(const RosterOptions& options, Actions actions)
      : options_(options), roster_(options), actions_(std::move(actions)) {}
  // Takes over from a lost coordinator.
  Generations(const Former& former, Actions actions, Time now);

  void arrive(net::ConnectionId connection, const Json& message, Time now);
  // The connection of a process that waits, or has not joined yet, was closed. Others are ignored.
  void closed(net::ConnectionId connection, Time now);
  void joined(int worker);  // The worker joined the generation, on a connection of its own.
  // A worker of the current generation was lost. Fills in lost.process.
  void lost_worker(int worker, PhaseAt last, LostProcess lost, Time now);
  void lost_while_waiting(LostProcess lost, Time now);
  // A process that is not a member, or is no longer one, has ended.
  void process_ended(Roster::Process process, const std::string& how, Time now);
  void left(int worker, Time now);
  // Returns why the number cannot be changed to `target`, or an empty text.
  std::string resize(int target, Time now);
  void finish(Time now);
  void tick(Time now);
  void claimed(Time until, Time now) { act(roster_.claimed(until, now), now); }
  bool is_claimed(Time now) const { return roster_.is_claimed(now); }
  // The first step of the current generation is committed. Adds `facts` to the history's entry.
  void stepped(int64_t step, const Json& facts, Time now);

  int generation() const { return roster_.generation(); }
  int target() const { return roster_.target(); }
  bool is_waiting(int worker) const;  // The worker has come to the regrouping.
  // If true, a worker that joins the current generation must be told to regroup.
  bool is_interrupted() const { return roster_.is_interrupted(); }
  bool anyone_left() const { return roster_.anyone_left(); }
  bool is_finishing() const { return roster_.is_finishing(); }
  int resizes() const { return resizes_; }  // The number of changes by resize().
  bool takes_part(Roster::Process process) const {
    return roster_.is_member(process) || roster_.is_waiting(process);
  }
  bool was_dismissed(Roster::Process process) const { return dismissed_.contains(process); }
  std::optional<int> worker_of(Roster::Process process) const;
  // The process of a worker of the current generation.
  Roster::Process process_of(int worker) const { return members_.at(static_cast<size_t>(worker)); }
  // The last place of a process that was lost. Empty if it never was a member.
  std::optional<PhaseAt> last_phase(Roster::Process process) const {
    const auto found = last_phases_.find(process);
    return found == last_phases_.end() ? std::nullopt : std::optional(found->second);
  }
  std::optional<LostMember> lost_member(Roster::Process process) const {
    const auto found = lost_members_.find(process);
    return found == lost_members_.end() ? std::nullopt : std::optional(found->second);
  }
  // [{generation, world_size, first_step, cause, lost_ranks, phase, seconds_to_first_step, batch,
  // micro_batches, learning_rate_factor}]
  const Json& history() const { return history_; }
  std::vector<net::ConnectionId> all_waiting() const;  // The connections of processes that wait.
  // The members that have not come since the last generation began to end, with their addresses.
  std::vector<Former::Place> missing() const;
  std::vector<LostProcess> take_lost() { return std::exchange(lost_, {}); }
  // The reason why no generation can form any more; empty if one may.
  const std::optional<Failure>& failure() const { return failure_; }

 private:
  void act(const Roster::Decisions& decisions, Time now);
  void answer(Roster::Process process, const Json& message);
  void begin(const Roster::Decisions::Generation& formed, Time now);
  // The facts that must be equal on all members, and the process that told them first.
  struct Terms {
    std::string name;
    std::map<std::string, std::string> facts;
    bool is_own = false;
  };
  bool accepts(net::ConnectionId connection, Roster::Process process, Terms terms, Time now);
  void turn_away(net::ConnectionId connection, const Terms& whose);
  void forget_place_of(Roster::Process process);
  Former as_known() const;
  void learn(const Json& history);
  void note_cause(const std::string& cause, Time now);
  void note_progress(int64_t committed);
  void fail(const std::string& what, ErrorCode code);
  void note_lost(int worker, PhaseAt last, const LostProcess& lost, Time now);
  // The process's number in the current generation, also while it waits for the next one.
  std::optional<int> last_worker_of(Roster::Process process) const;

  RosterOptions options_;
  Roster roster_;
  Actions actions_;
  std::optional<Terms> terms_;  // The terms of the job.
  // The terms of the processes that wait for the first generation.
  std::map<net::ConnectionId, Terms> terms_of_;
  std::map<net::ConnectionId, Roster::Process> waiting_;
  // The processes that have a place in the current generation and have not joined it yet.
  std::map<net::ConnectionId, Roster::Process> placed_;
  std::vector<Roster::Process> members_;  // The current generation's processes, by worker number.
  std::map<Roster::Process, net::Endpoint> standbys_;
  std::set<Roster::Process> dismissed_;
  // An entry for each process that was a member. It gets its value when the process is lost.
  std::map<Roster::Process, PhaseAt> last_phases_;
  std::map<Roster::Process, LostMember> lost_members_;
  std::vector<LostProcess> lost_;
  std::optional<Failure> failure_;
  UnfinishedSteps unfinished_;
  int resizes_ = 0;
  Json history_ = Json::array();
  // The next generation's entry in the history.
  std::string taken_over_;  // After a take-over, the text that names the lost coordinator.
  std::string cause_ = "start";
  Json lost_ranks_ = Json::array();
  std::string phase_;
  std::optional<LostProcess> first_lost_;  // The first since the last generation formed.
  PhaseAt first_lost_at_;
  // The reason why a worker gave its step up. It is the cause if no worker was lost.
  std::string given_up_;
  std::optional<Time> began_;  // The time at which the cause came up.
};

}  // namespace trireme::membership
