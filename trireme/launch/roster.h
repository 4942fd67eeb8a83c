// Who forms the next generation of an elastic job: the rules as a pure state machine, without
// sockets, clocks or threads (docs/membership.md draws it).
//
// A process arrives, is a member of one generation after the other, and is gone once it was lost,
// has left or was dismissed. The members of a generation end it together: they arrive again when
// one of them was lost, or when they were asked to at the end of a step.
#pragma once
#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace trireme::launch {

struct RosterOptions {
  int minimum = 1;  // Fewer processes never form a generation.
  int maximum = 1;  // More are never taken in.
  int target =
      1;  // Wanted; the first generation waits for so many, later ones take more in as they come.
  std::chrono::milliseconds first_timeout{
      60000};  // From the first arrival on; then the first generation forms with `minimum` or more.
  std::chrono::milliseconds regroup_timeout{
      10000};  // From the first who comes to the regrouping; a member that does not is lost.
  std::chrono::milliseconds refill_timeout{
      60000};     // From when nobody is at work; fewer than `minimum` wait so long for more.
  int nodes = 1;  // Launchers of the job. With several, a lost coordinator is only followed
                  // by another one that holds the claim.
  bool by_claim = false;  // etcd decides which process coordinates (claim.h): only the holder of
                          // the claim forms generations.
};

class Roster {
 public:
  using Time = std::chrono::steady_clock::time_point;
  using Process = int64_t;  // One incarnation: a replacement is another.

  // What is to be done now, in this order.
  struct Decisions {
    struct Generation {
      int number = 0;
      std::vector<Process> members;  // By worker number: newest state first, then as in the
                                     // generation before, newcomers last.
      int64_t step = -1;             // The newest state's; -1: nobody has any.
    };
    std::vector<Process> interrupt;  // Members that shall arrive at the end of their step.
    std::vector<Process> dismissed;  // Not needed: they end well.
    std::vector<Process> missed;     // Lost, as they did not come to the regrouping.
    std::vector<Generation> formed;  // At most one.
    std::string failure;             // Why no generation can form any more; empty: it may.
    bool empty() const {
      return interrupt.empty() && dismissed.empty() && missed.empty() && formed.empty() &&
             failure.empty();
    }
  };

  explicit Roster(const RosterOptions& options);
  // Takes over from a coordinator that is gone: the members of its generation (by worker number)
  // are to come. Without a claim each of them has to come, or to be known to be gone: a member that
  // does neither could go on with another coordinator, so the job fails then.
  Roster(const RosterOptions& options, int generation, const std::vector<Process>& members);

  // The process waits for the next generation, with the state after `step` committed steps (-1:
  // none). What is known of it before (that it was lost: it may have been silent only) is
  // forgotten.
  Decisions arrive(Process process, int64_t step, Time now);
  // It died, or fell silent. Unknown ones are ignored.
  Decisions lost(Process process, Time now);
  // It said goodbye: its part of the work is done. From the first goodbye on nobody is taken in any
  // more.
  Decisions left(Process process, Time now);
  // As if somebody had said goodbye: the job ends soon.
  Decisions finish(Time now);
  // So many processes are wanted from now on.
  Decisions resize(int target, Time now);
  // With `by_claim`: no other coordinator forms generations before `until`, so this one may. A time
  // that has passed takes it back.
  Decisions claimed(Time until, Time now);
  Decisions fail(const std::string& why);  // No generation forms any more, for this reason.
  Decisions tick(
      Time now);  // Notices what did not happen. Call it often. A failure is told again each time.

  int generation() const { return generation_; }  // -1 before the first.
  int target() const { return options_.target; }
  bool is_member(Process process) const;   // Of the current generation, and at work in it.
  bool is_waiting(Process process) const;  // For the next one.
  bool anyone_left() const {
    return !in_state(State::working).empty() || !in_state(State::waiting).empty();
  }
  bool is_claimed(Time now) const {
    return !options_.by_claim || now < claimed_until_;
  }  // What this coordinator finds, counts.
  bool is_interrupted() const {
    return interrupted_;
  }  // Members of the current one were asked to come, and will have to be again.
  std::string state_key(Time now) const;  // Rosters of the same key decide alike from `now` on; for
                                          // tests that visit all states.

 private:
  enum class State { working, waiting, gone };
  struct Entry {
    State state = State::waiting;
    int64_t step = -1;
    int worker = -1;  // In its last generation; -1: it had none.
    int64_t arrival = 0;
  };
  std::vector<Process> in_state(State state) const;
  Decisions decide(Time now);
  void ask_to_come(Decisions& decisions);
  void send_newcomers_home(Decisions& decisions);
  void give_up_on_missing(Decisions& decisions, Time now);
  void form_or_fail(Decisions& decisions, Time now);
  void form(Decisions& decisions);

  RosterOptions options_;
  std::map<Process, Entry> processes_;
  int generation_ = -1;
  int64_t arrivals_ = 0;
  bool ending_ = true;        // The current generation is over, or will be at the end of its step.
  bool interrupted_ = false;  // Its members were asked to come.
  bool finishing_ = false;    // Somebody said goodbye.
  bool taken_over_ = false;   // Until the first generation after it.
  Time claimed_until_ = Time::min();
  std::string failure_;
  std::optional<Time> missing_since_;  // Some have come, and members are still at work.
  std::optional<Time> short_since_;    // Nobody is at work, and too few have come.
};

}  // namespace trireme::launch
