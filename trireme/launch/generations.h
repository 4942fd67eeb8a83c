// An elastic job as the coordinator sees it: which process is which worker of which generation, who
// waits, and what was.
//
// Not for several threads at once.
#pragma once
#include <trireme/base/json.h>
#include <trireme/launch/former.h>
#include <trireme/launch/membership.h>
#include <trireme/launch/roster.h>
#include <trireme/net/control.h>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace trireme::launch {

// A process that the job goes on without. The supervisor ends it, should it still live, and starts
// another.
struct LostProcess {
  Roster::Process process = 0;
  std::string text;           // For people.
  std::string reason;         // LostWorker::reason; empty: the text says it.
  std::string circumstances;  // LostWorker::circumstances
  bool ending = false;  // Its connection closed: it may be on its way to an end, with an exit code
                        // of its own.
};

// A member that was lost.
struct LostMember {
  int worker = 0;             // In the generation that it was lost in.
  std::string circumstances;  // LostWorker::circumstances
};

class Generations {
 public:
  using Time = Roster::Time;
  struct Actions {
    std::function<void(net::ConnectionId, Json)> answer;  // To one that waits.
    std::function<void(net::ConnectionId)> close;         // After what was answered.
    std::function<void(int generation, int workers)>
        start;  // A new Membership takes the place of the last.
    std::function<void(int worker, const std::string& reason)>
        lose;                         // A worker of the current generation.
    std::function<void()> interrupt;  // Tell the current generation's workers.
    std::function<Former()> rules;    // Where this coordinator is, and its time-outs.
    // Whether this coordinator's own launcher started it: it knows best how the job was meant.
    std::function<bool(Roster::Process)> is_own = [](Roster::Process) { return false; };
  };
  Generations(const RosterOptions& options, Actions actions)
      : options_(options), roster_(options), actions_(std::move(actions)) {}
  // Takes over where the coordinator was lost.
  Generations(const Former& former, Actions actions, Time now);

  void arrive(net::ConnectionId connection, const Json& message, Time now);
  void closed(net::ConnectionId connection,
              Time now);    // Of one that waits, or has not joined yet; others are ignored.
  void joined(int worker);  // The current generation, on a connection of its own.
  // Of the current generation; the process is filled in.
  void lost_worker(int worker, PhaseAt last, LostProcess lost, Time now);
  void lost_while_waiting(LostProcess lost, Time now);
  void process_ended(Roster::Process process, const std::string& how,
                     Time now);  // Of one that is no member, or not any more.
  void left(int worker, Time now);
  // Empty, or why it cannot be.
  std::string resize(int target, Time now);
  void finish(Time now);
  void tick(Time now);
  void claimed(Time until, Time now) { act(roster_.claimed(until, now), now); }
  bool is_claimed(Time now) const { return roster_.is_claimed(now); }
  // The first step of the current generation is committed; `facts` join its entry.
  void stepped(int64_t step, const Json& facts, Time now);

  int generation() const { return roster_.generation(); }
  int target() const { return roster_.target(); }
  bool is_waiting(int worker) const;  // It has come to the regrouping.
  bool is_interrupted() const {
    return roster_.is_interrupted();
  }  // Who joins the current generation must be told to regroup.
  bool anyone_left() const { return roster_.anyone_left(); }
  bool takes_part(Roster::Process process) const {
    return roster_.is_member(process) || roster_.is_waiting(process);
  }
  bool was_dismissed(Roster::Process process) const { return dismissed_.contains(process); }
  std::optional<int> worker_of(Roster::Process process) const;
  Roster::Process process_of(int worker) const {
    return members_.at(static_cast<size_t>(worker));
  }  // In the current generation.
  // Where a process was when it was lost; empty if it never was a member.
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
  std::vector<net::ConnectionId> all_waiting() const;  // Connections of processes that wait.
  std::vector<Former::Place> missing() const;          // Members that have not come since the last
                                               // generation began to end, with their addresses.
  std::vector<LostProcess> take_lost() { return std::exchange(lost_, {}); }
  // Why no generation can form any more; empty: one may.
  const std::optional<Failure>& failure() const { return failure_; }

 private:
  void act(const Roster::Decisions& decisions, Time now);
  // What all members must have alike, and which process said so first.
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
  std::optional<int> last_worker_of(Roster::Process process) const;  // Also while it waits.

  RosterOptions options_;
  Roster roster_;
  Actions actions_;
  std::optional<Terms> terms_;                   // Of the job.
  std::map<net::ConnectionId, Terms> terms_of_;  // Of those that wait for the first generation.
  std::map<net::ConnectionId, Roster::Process> waiting_;
  std::map<net::ConnectionId, Roster::Process>
      placed_;  // In the current generation, which they have not joined yet.
  std::vector<Roster::Process> members_;  // By worker, of the current generation.
  std::map<Roster::Process, net::Endpoint> standbys_;
  std::set<Roster::Process> dismissed_;
  std::map<Roster::Process, PhaseAt>
      last_phases_;  // Of all that were members; filled in when they are lost.
  std::map<Roster::Process, LostMember> lost_members_;
  std::vector<LostProcess> lost_;
  std::optional<Failure> failure_;
  UnfinishedSteps unfinished_;
  Json history_ = Json::array();
  // Of the next generation.
  std::string taken_over_;  // From whom.
  std::string cause_ = "start";
  Json lost_ranks_ = Json::array();
  std::string phase_;
  std::optional<LostProcess> first_lost_;  // Since the last generation formed.
  PhaseAt first_lost_at_;
  std::string given_up_;       // Why a worker gave its step up, should no lost worker be the cause.
  std::optional<Time> began_;  // When its cause came up.
};

}  // namespace trireme::launch
