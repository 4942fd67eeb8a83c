// The rules that choose the members of the next generation of an elastic job, as a pure state
// machine without sockets, clocks or threads (docs/membership.md draws it).
//
// A process arrives, is a member of one generation after the other, and is gone once it was lost,
// has left or was dismissed. The members of a generation end it together: they arrive again when
// one of them was lost, or at the end of a step when they were asked to.
#pragma once
#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace trireme::membership {

struct RosterOptions {
  int minimum = 1;  // A generation has at least this number of members.
  int maximum = 1;  // A generation has at most this number of members.
  // The wanted number of members. The first generation waits for it; later ones admit processes as
  // they come.
  int target = 1;
  // The time from the first arrival after which the first generation forms with `minimum` members
  // or more.
  std::chrono::milliseconds first_timeout{60000};
  // The time from the first arrival for a regrouping after which a member that has not come is
  // lost.
  std::chrono::milliseconds regroup_timeout{10000};
  // Once no member is at work, fewer than `minimum` processes wait this long for more.
  std::chrono::milliseconds refill_timeout{60000};
  // The number of launchers. With several, only a process that holds the claim may replace a lost
  // coordinator. A cluster counts as several: its tasks may be on several hosts.
  int nodes = 1;
  // If true, etcd decides which process coordinates (claim.h): only the holder of the claim forms
  // generations.
  bool by_claim = false;
  // The number of members that come and go together (units.h), as the stages and replicas of a
  // pipeline do. The three numbers of members above are multiples of it.
  int unit = 1;
  std::string shape = {};  // A unit in words, for messages: "2 stages x 2 replicas".
};

class Roster {
 public:
  using Time = std::chrono::steady_clock::time_point;
  using Process = int64_t;  // One start of a worker. Its replacement is another process.

  // The actions to take now, in this order.
  struct Decisions {
    struct Generation {
      int number = 0;
      // The members by worker number. Without units: those with the newest state first, then in
      // the order of the generation before, newcomers last and by their numbers. With units: each
      // survivor keeps its position in its unit, and newcomers fill the holes (units.h).
      std::vector<Process> members;
      int64_t step = -1;  // The committed steps of the newest state; -1: no member has a state.
      // The committed steps of each member's state, by worker number; -1: it has no state, or one
      // of another position in a unit. With units, worker 0 need not have the newest one.
      std::vector<int64_t> steps = {};
    };
    std::vector<Process> interrupt;  // The members that must arrive at the end of their step.
    std::vector<Process> dismissed;  // Processes that are not needed. They end well.
    std::vector<Process> missed;     // Members that are lost: they did not come to the regrouping.
    std::vector<Generation> formed;  // At most one.
    std::string failure;  // The reason why no generation can form any more; empty if one may.
    bool empty() const {
      return interrupt.empty() && dismissed.empty() && missed.empty() && formed.empty() &&
             failure.empty();
    }
  };

  // Throws Error(invalid_argument) if a number of members is no multiple of the unit.
  explicit Roster(const RosterOptions& options);
  // Takes over from a coordinator that is gone. The members of its generation (by worker number)
  // are expected to come. Without a claim each of them has to come or be known to be gone: a
  // member that does neither could continue with another coordinator, so the job fails.
  Roster(const RosterOptions& options, int generation, const std::vector<Process>& members);

  // The process waits for the next generation, with the state after `step` committed steps (-1: no
  // state). If it was counted as lost, that is forgotten: it may only have been silent.
  Decisions arrive(Process process, int64_t step, Time now);
  // The process died or fell silent. An unknown process is ignored.
  Decisions lost(Process process, Time now);
  // The process said goodbye: its part of the work is done. From the first goodbye on no newcomer
  // is admitted.
  Decisions left(Process process, Time now);
  // The job ends soon. This acts as if a process had said goodbye.
  Decisions finish(Time now);
  // From now on `target` processes are wanted, or with units the next smaller multiple of a unit.
  Decisions resize(int target, Time now);
  // With `by_claim`: no other coordinator forms generations before `until`, so this one may. A
  // time in the past ends the permission.
  Decisions claimed(Time until, Time now);
  Decisions fail(const std::string& why);  // No generation forms any more, for this reason.
  // Notices time-outs. Call it often. Each call repeats a failure.
  Decisions tick(Time now);

  int generation() const { return generation_; }  // -1 before the first generation.
  int target() const { return options_.target; }
  bool is_member(Process process) const;   // The process is at work in the current generation.
  bool is_waiting(Process process) const;  // The process waits for the next generation.
  bool anyone_left() const {
    return !in_state(State::working).empty() || !in_state(State::waiting).empty();
  }
  bool is_finishing() const { return finishing_; }  // No newcomer is admitted any more.
  // Whether this coordinator may form generations and count processes as lost.
  bool is_claimed(Time now) const { return !options_.by_claim || now < claimed_until_; }
  // Whether the members of the current generation were asked to come. One that joins it later must
  // be asked too.
  bool is_interrupted() const { return interrupted_; }
  // For tests that visit all states of a few processes: rosters with the same key decide alike from
  // `now` on.
  std::string state_key(Time now) const;

 private:
  enum class State { working, waiting, gone };
  struct Entry {
    State state = State::waiting;
    int64_t step = -1;
    // Its number in the last generation; -1: it was not a member, or waits as a spare since.
    int worker = -1;
    int position = -1;     // The position in a unit that it had last; -1: none.
    bool is_done = false;  // It has said goodbye.
  };
  std::vector<Process> in_state(State state) const;
  Decisions decide(Time now);
  void ask_to_come(Decisions& decisions);
  void send_newcomers_home(Decisions& decisions);
  void give_up_on_missing(Decisions& decisions, Time now);
  void form_or_fail(Decisions& decisions, Time now);
  bool a_unit_is_done() const;
  void send_home(Decisions& decisions);
  void form(Decisions& decisions);
  std::vector<Process> by_newest_state(Decisions& decisions);
  std::vector<Process> in_units(Decisions& decisions);
  bool is_enough(int waiting) const;

  RosterOptions options_;
  std::map<Process, Entry> processes_;
  int generation_ = -1;
  bool ending_ = true;        // The current generation is over, or ends after its step.
  bool interrupted_ = false;  // Its members were asked to come.
  bool finishing_ = false;    // A process said goodbye, or the job ends soon.
  bool taken_over_ = false;   // No generation has formed since this coordinator took over.
  Time claimed_until_ = Time::min();
  std::string failure_;
  // Since then some processes have come, and members are still at work.
  std::optional<Time> missing_since_;
  // Since then no member is at work, and too few processes have come.
  std::optional<Time> short_since_;
};

}  // namespace trireme::membership
