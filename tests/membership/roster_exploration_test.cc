// Explores all events that can happen to a few processes, in every order. Each state of the
// roster, together with the states of the processes, is visited once.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <trireme/membership/roster.h>
#include <algorithm>
#include <array>
#include <deque>
#include <set>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

namespace trireme::membership::roster_exploration_test {
namespace {

using namespace std::chrono_literals;
using Time = Roster::Time;
using Decisions = Roster::Decisions;

constexpr int kMost = 6;
constexpr auto kTick = 1s;
constexpr auto kLease = 2 * kTick;
constexpr int64_t kOldestThatCounts = 1;  // The steps behind the newest one that still count.

// The true state of a process. The roster may take it for another.
enum class Life {
  unborn,
  waiting,
  working,
  given_up_on,  // The roster takes it for lost. It may still live and come late.
  dead,
  dismissed,
  left,
};

struct Process {
  Life life = Life::unborn;
  int64_t step = -1;
  bool arrived = false;    // It has arrived since its last generation.
  bool told_gone = false;  // The coordinator that took over was told that it is gone.
  int position = -1;       // The position in a unit of which it has the state; -1: of none.
};

struct World {
  explicit World(const RosterOptions& options) : roster(options) {}
  Roster roster;
  Time now{};
  std::array<Process, kMost> processes;
  std::vector<int64_t> generation;  // The members of the current generation.
  bool ending = true;               // One of them is lost, or has arrived again.
  bool finishing = false;
  bool failed = false;
  Time claimed_until = Time::min();  // Until then no other coordinator forms generations.
  // A coordinator has taken over and has not formed a generation yet.
  bool took_over = false;
  bool has_taken_over = false;  // A coordinator has taken over; at most once in a trail.
};

struct Event {
  enum Kind {
    arrive,
    commit,
    lost,
    dead,
    left,
    resize,
    take_over,
    claimed,
    claim_taken,
    tick
  } kind = tick;
  int value = 0;  // The process, or the number of processes that are wanted.
};

std::string describe(const Event& event) {
  static constexpr std::array kNames{"arrive", "commit",    "lost",    "dead",        "left",
                                     "resize", "take over", "claimed", "claim taken", "tick"};
  return event.kind == Event::tick ? " tick,"
                                   : fmt::format(" {} {},", kNames[event.kind], event.value);
}

// The space to explore. Each kind of event multiplies the states.
struct Space {
  int processes, minimum, maximum, target;
  bool late_arrivals, resizes, time, take_over = false, by_claim = false;
  int unit = 1;
};

class Exploration {
 public:
  explicit Exploration(const Space& space)
      : space_(space),
        options_{.minimum = space.minimum,
                 .maximum = space.maximum,
                 .target = space.target,
                 .first_timeout = 2 * kTick,
                 .regroup_timeout = kTick,
                 .refill_timeout = 2 * kTick,
                 .by_claim = space.by_claim,
                 .unit = space.unit} {}

  // Returns the number of states.
  size_t run() {
    visit(World(options_), -1, {});
    for (; !open_.empty() && !testing::Test::HasFailure(); open_.pop_front()) {
      trail_ = open_.front().second;
      follow_all(open_.front().first);
      expect_an_end_of_all_waits(open_.front().first);
    }
    return seen_.size();
  }

 private:
  void follow_all(const World& world) {
    for (int p = 0; p < space_.processes; ++p) {
      const Life life = world.processes[static_cast<size_t>(p)].life;
      const bool next_unborn =
          life == Life::unborn &&
          (p == 0 || world.processes[static_cast<size_t>(p - 1)].life != Life::unborn);
      if (next_unborn || life == Life::working || life == Life::given_up_on)
        follow(world, {Event::arrive, p});
      if (life == Life::working && !world.finishing && may_commit(world, p))
        follow(world, {Event::commit, p});
      if (life == Life::working && may_leave(world, p)) follow(world, {Event::left, p});
      if (life == Life::unborn || (life == Life::left && !world.has_taken_over)) continue;
      if (space_.late_arrivals && life != Life::left) follow(world, {Event::lost, p});
      // The roster may hear again of a process that is gone, or was dismissed.
      follow(world, {Event::dead, p});
    }
    for (int target = space_.minimum; space_.resizes && target <= space_.maximum;
         target += space_.unit)
      if (target != world.roster.target()) follow(world, {Event::resize, target});
    if (space_.take_over && !world.has_taken_over && !world.failed &&
        world.roster.generation() >= 0)
      follow(world, {Event::take_over});
    if (space_.by_claim && !world.failed) {
      follow(world, {Event::claimed});
      if (world.claimed_until > world.now) follow(world, {Event::claim_taken});
    }
    if (space_.time) follow(world, {Event::tick});
  }

  void follow(World world, const Event& event) {
    const int generation = world.roster.generation();
    last_ = event;
    judge(world, generation, apply(world, event));
    visit(std::move(world), trail_, event);
  }

  Decisions apply(World& world, const Event& event) const {
    switch (event.kind) {
      case Event::arrive: return arrive(world, event.value);
      case Event::commit: return commit(world, event.value);
      case Event::lost: return lose(world, event.value, Life::given_up_on);
      case Event::dead: return lose(world, event.value, Life::dead);
      case Event::left: return leave(world, event.value);
      case Event::resize: return world.roster.resize(event.value, world.now);
      case Event::take_over: return take_over(world);
      case Event::claimed:
        return world.roster.claimed(world.claimed_until = world.now + kLease, world.now);
      case Event::claim_taken:
        return world.roster.claimed(world.claimed_until = world.now, world.now);
      case Event::tick: break;
    }
    return world.roster.tick(world.now += kTick);
  }

  void visit(World world, int before, const Event& event) {
    if (!seen_.insert(key(world)).second) return;
    trails_.emplace_back(before, event);
    open_.emplace_back(std::move(world), static_cast<int>(trails_.size()) - 1);
  }

  // Describes the events up to now.
  std::string where() const {
    std::string text = describe(last_);
    for (int at = trail_; at > 0; at = trails_[static_cast<size_t>(at)].first)
      text = describe(trails_[static_cast<size_t>(at)].second) + text;
    return fmt::format("--elastic {}:{}, {} wanted:{}", space_.minimum, space_.maximum,
                       space_.target, text);
  }

  std::string key(const World& world) const {
    int64_t newest = -1;
    for (const Process& process : world.processes)
      if (process.life != Life::dead) newest = std::max(newest, process.step);
    std::string key = world.roster.state_key(world.now);
    for (int p = 0; p < space_.processes; ++p) {
      const Process& process = world.processes[static_cast<size_t>(p)];
      const bool counts = process.life != Life::dead && process.life != Life::dismissed &&
                          process.life != Life::left;
      const bool member = std::ranges::count(world.generation, p) > 0;
      // The step of a dead member still limits the steps that the others can commit.
      const int64_t behind =
          !counts && !member ? -2
          : process.step < 0 ? -1
                             : std::clamp<int64_t>(newest - process.step, -1, kOldestThatCounts);
      for (const int64_t part :
           {static_cast<int64_t>(process.life), behind, int64_t{process.arrived}, int64_t{member},
            int64_t{world.took_over && process.told_gone}})
        key += static_cast<char>('a' + 4 + part);
    }
    key += fmt::format("{:d}{:d}", world.took_over, world.has_taken_over);
    return key;
  }

  // A step is committed once every member has given its gradients: no member can be a whole step
  // behind.
  static bool may_commit(const World& world, int p) {
    const int64_t step = world.processes[static_cast<size_t>(p)].step;
    return std::ranges::all_of(world.generation, [&](int64_t q) {
      return world.processes[static_cast<size_t>(q)].step >= step;
    });
  }
  // Whether this is after the last step: all members have committed it, and none is beyond it.
  static bool may_leave(const World& world, int p) {
    const int64_t step = world.processes[static_cast<size_t>(p)].step;
    return may_commit(world, p) &&
           std::ranges::all_of(world.processes,
                               [&](const Process& process) { return process.step <= step; });
  }
  static Decisions commit(World& world, int p) {
    ++world.processes[static_cast<size_t>(p)].step;
    return {};
  }
  static Decisions arrive(World& world, int p) {
    Process& process = world.processes[static_cast<size_t>(p)];
    if (process.life == Life::working) world.ending = true;
    process.life = Life::waiting;
    process.arrived = true;
    return world.roster.arrive(p, process.step, world.now);
  }
  static Decisions lose(World& world, int p, Life becomes) {
    Process& process = world.processes[static_cast<size_t>(p)];
    if (process.life == Life::working) world.ending = true;
    if (process.life != Life::dismissed && process.life != Life::dead) process.life = becomes;
    process.told_gone = true;
    return world.roster.lost(p, world.now);
  }
  // Members that had come to the lost coordinator's regrouping have to come again. The successor
  // does not know the newcomers.
  Decisions take_over(World& world) const {
    RosterOptions options = options_;
    options.target = world.roster.target();
    world.roster = Roster(options, world.roster.generation(), world.generation);
    for (size_t p = 0; p < world.processes.size(); ++p) {
      Process& process = world.processes[p];
      if (process.life == Life::waiting)
        process.life = std::ranges::count(world.generation, p) > 0 ? Life::working : Life::unborn;
      if (process.life != Life::waiting) process.arrived = false;
      process.told_gone = false;
    }
    world.ending = world.took_over = world.has_taken_over = true;
    world.finishing = false;
    world.claimed_until = Time::min();  // The claim belonged to the lost coordinator.
    return {};
  }
  static Decisions leave(World& world, int p) {
    world.processes[static_cast<size_t>(p)].life = Life::left;
    world.processes[static_cast<size_t>(p)].told_gone = true;
    world.finishing = true;
    return world.roster.left(p, world.now);
  }

  void judge(World& world, int generation_before, const Decisions& decisions) {
    for (const int64_t p : decisions.missed) {
      EXPECT_TRUE(!world.took_over || space_.by_claim)
          << where() << ": it may continue with another coordinator";
      EXPECT_TRUE(at(world, p).life == Life::working || world.took_over) << where();
      if (at(world, p).life == Life::working) at(world, p).life = Life::given_up_on;
      world.ending = true;
    }
    for (const int64_t p : decisions.interrupt)
      EXPECT_EQ(at(world, p).life, Life::working) << where();
    ASSERT_LE(decisions.formed.size(), 1U) << where();
    if (!decisions.formed.empty()) judge(world, generation_before, decisions.formed[0]);
    if (!decisions.formed.empty() && space_.unit > 1) {
      const auto come = decisions.formed[0].members.size() +
                        static_cast<size_t>(count(world, Life::waiting)) -
                        decisions.dismissed.size();
      EXPECT_EQ(
          static_cast<int>(decisions.formed[0].members.size()),
          std::min(static_cast<int>(come), world.roster.target()) / space_.unit * space_.unit)
          << where() << ": a unit could have been filled";
    }
    for (const int64_t p : decisions.dismissed) {
      EXPECT_EQ(at(world, p).life, Life::waiting) << where();
      at(world, p).life = Life::dismissed;
    }
    world.failed = !decisions.failure.empty() || world.failed;
    expect_no_needless_wait(world);
  }

  void judge(World& world, int generation_before, const Decisions::Generation& formed) {
    EXPECT_EQ(formed.number, generation_before + 1) << where();
    EXPECT_EQ(world.roster.generation(), formed.number) << where();
    for (const Process& process : world.processes)
      EXPECT_NE(process.life, Life::working) << where() << ": a member was still at work";
    const int size = static_cast<int>(formed.members.size());
    EXPECT_GE(size, world.finishing ? space_.unit : options_.minimum) << where();
    EXPECT_LE(size, world.roster.target()) << where();
    EXPECT_LE(world.roster.target(), options_.maximum) << where();
    for (const int64_t p : formed.members) {
      EXPECT_EQ(at(world, p).life, Life::waiting) << where();
      EXPECT_TRUE(at(world, p).arrived) << where();
      EXPECT_TRUE(world.roster.is_member(p)) << where();
    }
    if (space_.unit > 1) {
      expect_whole_units(world, formed);
      expect_steps_of_positions(world, formed);
    } else {
      EXPECT_EQ(at(world, formed.members.front()).step, formed.step)
          << where() << ": worker 0 has not the newest state";
      for (const Process& process : world.processes) {
        if (process.life == Life::waiting) {
          EXPECT_LE(process.step, formed.step) << where() << ": the newest state was left outside";
        }
      }
    }
    if (space_.by_claim) {
      EXPECT_GT(world.claimed_until, world.now) << where() << ": another one may form generations";
    } else if (world.took_over) {
      for (const int64_t p : world.generation)
        EXPECT_TRUE(is_accounted_for(world, p)) << where() << ": a member may continue elsewhere";
    }
    world.took_over = false;
    for (int i = 0; i < size; ++i)
      at(world, formed.members[static_cast<size_t>(i)]) = {Life::working, formed.step, false,
                                                           false, i % space_.unit};
    // The generation goes on without the spares.
    for (Process& process : world.processes)
      if (process.life != Life::working) process.position = -1;
    world.generation = formed.members;
    world.ending = false;
  }

  // A state counts only at the position to which it belongs, and while it is not old.
  void expect_steps_of_positions(World& world, const Decisions::Generation& formed) {
    for (size_t i = 0; i < formed.members.size(); ++i) {
      const Process& process = at(world, formed.members[i]);
      const bool counts = process.position == static_cast<int>(i) % space_.unit;
      EXPECT_EQ(formed.steps[i], counts ? process.step : -1) << where();
    }
  }

  // Units are whole. One that is not dissolved keeps its members at their positions, and no unit
  // is dissolved instead of one with more holes. The units that stay keep their order.
  void expect_whole_units(const World& world, const Decisions::Generation& formed) {
    const int unit = space_.unit;
    EXPECT_EQ(static_cast<int>(formed.members.size()) % unit, 0) << where();
    EXPECT_EQ(std::set<int64_t>(formed.members.begin(), formed.members.end()).size(),
              formed.members.size())
        << where() << ": a process has two places";
    EXPECT_EQ(formed.step, std::ranges::max(formed.steps)) << where();
    const auto seat = [&](int64_t p) {
      const auto found = std::ranges::find(formed.members, p);
      return found == formed.members.end() ? -1 : static_cast<int>(found - formed.members.begin());
    };
    int last_kept = -1, most_kept_holes = 0, fewest_dissolved_holes = unit, dissolved = 0;
    for (size_t first = 0; first < world.generation.size(); first += static_cast<size_t>(unit)) {
      int survivors = 0, kept = 0, new_unit = -1;
      for (int position = 0; position < unit; ++position) {
        const int64_t p = world.generation[first + static_cast<size_t>(position)];
        if (world.processes[static_cast<size_t>(p)].life != Life::waiting) continue;
        ++survivors;
        const int now = seat(p);
        if (now < 0 || now % unit != position || (kept > 0 && now / unit != new_unit)) continue;
        ++kept;
        new_unit = now / unit;
      }
      if (survivors == 0) continue;
      if (kept == survivors && new_unit > last_kept) {
        last_kept = new_unit;
        most_kept_holes = std::max(most_kept_holes, unit - survivors);
      } else {
        ++dissolved;
        fewest_dissolved_holes = std::min(fewest_dissolved_holes, unit - survivors);
      }
    }
    if (dissolved > 0) {
      EXPECT_LE(most_kept_holes, fewest_dissolved_holes)
          << where() << ": a unit with more holes was kept instead";
    }
  }

  // Once all have come and they are enough, no process waits.
  void expect_no_needless_wait(const World& world) const {
    const bool at_work = count(world, Life::working) > 0;
    const int enough = world.finishing                 ? space_.unit
                       : world.roster.generation() < 0 ? world.roster.target()
                                                       : options_.minimum;
    const bool may_not = space_.by_claim && world.claimed_until <= world.now;
    const bool members_are_missing =
        world.took_over && !std::ranges::all_of(world.generation, [&](int64_t p) {
          return is_accounted_for(world, p);
        });
    if (world.failed || at_work || members_are_missing || may_not) return;
    EXPECT_LT(count(world, Life::waiting), enough)
        << where() << ": no member is missing, and they wait";
    // No newcomer is admitted any more that could fill their unit.
    if (world.finishing) {
      EXPECT_EQ(count(world, Life::waiting), 0) << where();
    }
  }

  // If only time passes, each waiting process gets a place in a generation, is dismissed, or hears
  // of a failure. It may wait on while the others are at work without a reason to end.
  void expect_an_end_of_all_waits(World world) {
    const auto somebody_waits_in_vain = [&] {
      const bool others_work = count(world, Life::working) > 0 && !world.ending;
      return !world.failed && !others_work && count(world, Life::waiting) > 0;
    };
    last_ = {};
    for (int i = 0; i < 8 && somebody_waits_in_vain(); ++i) {
      const int generation = world.roster.generation();
      judge(world, generation, world.roster.tick(world.now += kTick));
    }
    EXPECT_FALSE(somebody_waits_in_vain()) << where() << ": they wait forever";
  }

  // Whether a member has come to the coordinator that took over, or is known to be gone.
  static bool is_accounted_for(const World& world, int64_t p) {
    const Process& process = world.processes[static_cast<size_t>(p)];
    return process.told_gone || process.life == Life::waiting || process.life == Life::dismissed;
  }
  static Process& at(World& world, int64_t p) { return world.processes[static_cast<size_t>(p)]; }
  static int count(const World& world, Life life) {
    return static_cast<int>(std::ranges::count(world.processes, life, &Process::life));
  }

  const Space space_;
  const RosterOptions options_;
  std::deque<std::pair<World, int>> open_;  // The worlds to follow, with their places in trails_.
  std::vector<std::pair<int, Event>> trails_;
  std::unordered_set<std::string> seen_;
  int trail_ = -1;
  Event last_;
};

class RosterExploration : public testing::TestWithParam<Space> {};

TEST_P(RosterExploration, EveryOrderOfEventsKeepsTheRules) {
  const size_t states = Exploration(GetParam()).run();
  RecordProperty("states", static_cast<int>(states));
  EXPECT_GT(states, 500U);
}

std::string name_of(const testing::TestParamInfo<Space>& info) {
  const Space& space = info.param;
  return fmt::format("{}processesElastic{}to{}{}{}", space.processes, space.minimum, space.maximum,
                     space.unit > 1 ? fmt::format("InUnitsOf{}", space.unit) : "",
                     space.time ? "" : "WithoutTimeouts") +
         (space.unit > 1 && space.late_arrivals ? "WithLateArrivals" : "") +
         (space.take_over ? "TakenOver" : "") + (space.by_claim ? "ByClaim" : "");
}

INSTANTIATE_TEST_SUITE_P(
    AllThatCanHappen, RosterExploration,
    testing::Values(Space{2, 1, 2, 2, true, true, true}, Space{2, 2, 2, 2, true, true, true},
                    Space{3, 1, 2, 2, true, true, true}, Space{3, 2, 3, 3, true, false, true},
                    Space{3, 1, 3, 3, true, false, false}, Space{4, 2, 2, 2, false, false, false},
                    Space{4, 2, 3, 3, false, false, false}, Space{4, 1, 2, 1, false, true, false},
                    Space{4, 1, 4, 4, false, false, false},
                    Space{2, 1, 2, 2, true, false, true, true},
                    Space{3, 1, 3, 3, false, false, true, true},
                    Space{3, 2, 3, 3, true, false, false, true},
                    Space{4, 1, 3, 3, false, false, false, true},
                    Space{2, 1, 2, 2, true, true, true, true, true},
                    Space{3, 1, 3, 3, false, false, true, true, true},
                    Space{3, 2, 3, 3, true, false, false, true, true},
                    Space{4, 1, 3, 3, false, false, false, true, true}),
    name_of);

INSTANTIATE_TEST_SUITE_P(Units, RosterExploration,
                         testing::Values(Space{3, 2, 2, 2, true, true, true, false, false, 2},
                                         Space{4, 4, 4, 4, false, false, true, false, false, 2},
                                         Space{4, 2, 4, 4, false, true, false, false, false, 2},
                                         Space{4, 2, 2, 2, true, false, false, false, false, 2},
                                         Space{4, 2, 4, 4, false, false, false, true, false, 2},
                                         Space{3, 2, 2, 2, false, false, true, true, true, 2},
                                         Space{5, 2, 4, 4, false, false, false, false, false, 2},
                                         Space{4, 3, 3, 3, false, false, false, true, false, 3},
                                         Space{5, 4, 4, 4, false, false, false, false, false, 4}),
                         name_of);

}  // namespace
}  // namespace trireme::membership::roster_exploration_test
