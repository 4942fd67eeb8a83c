// The consistency of parameter servers, explored: workers that pull, compute, push, push again,
// leave and come back, in every order.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <trireme/plan/push_clock.h>
#include <deque>
#include <set>
#include <string>
#include <vector>

#include "../base/expect_error.h"

namespace trireme::plan::push_clock_test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using Verdict = PushClock::Verdict;

PushClock clock_of(ConsistencyOptions options, int workers) {
  PushClock clock(options, workers);
  for (int worker = 0; worker < workers; ++worker) EXPECT_EQ(clock.join(worker), 0);
  return clock;
}

TEST(PushClock, SynchronousUpdatesTakeAllPushesOfAStep) {
  PushClock clock = clock_of({Consistency::sync}, 3);
  EXPECT_EQ(clock.push(1, 0), Verdict::gather);
  EXPECT_EQ(clock.push(1, 0), Verdict::repeated);
  EXPECT_FALSE(clock.may_begin(1, 1));
  EXPECT_EQ(clock.push(0, 0), Verdict::gather);
  EXPECT_EQ(clock.push(2, 0), Verdict::complete);
  EXPECT_TRUE(clock.may_begin(1, 1));
  EXPECT_EQ(clock.updates(), 1);
}

TEST(PushClock, BackupWorkersAreNotWaitedFor) {
  PushClock clock = clock_of({Consistency::sync, 0, 1}, 3);
  EXPECT_EQ(clock.push(1, 0), Verdict::gather);
  EXPECT_EQ(clock.push(2, 0), Verdict::complete);
  EXPECT_EQ(clock.push(1, 1), Verdict::gather);
  EXPECT_EQ(clock.push(2, 1), Verdict::complete);
  EXPECT_EQ(clock.push(0, 0), Verdict::late);
  EXPECT_EQ(clock.step_to_begin(0, 1), 2) << "the slow worker leaves a step out";
  EXPECT_EQ(clock.push(0, 2), Verdict::gather);
}

TEST(PushClock, AStalenessOfSLetsAWorkerBeSStepsAhead) {
  for (const int s : {0, 1, 3}) {
    PushClock clock = clock_of({Consistency::stale, s}, 2);
    for (int64_t step = 0; step <= s; ++step) {
      EXPECT_TRUE(clock.may_begin(0, step));
      EXPECT_EQ(clock.push(0, step), Verdict::update);
    }
    EXPECT_FALSE(clock.may_begin(0, s + 1));
    EXPECT_EQ(clock.slowest()->worker, 1);
    EXPECT_EQ(clock.push(1, 0), Verdict::update);
    EXPECT_TRUE(clock.may_begin(0, s + 1));
  }
}

TEST(PushClock, NobodyWaitsForAWorkerThatHasLeft) {
  PushClock sync = clock_of({Consistency::sync}, 2);
  EXPECT_EQ(sync.push(0, 0), Verdict::gather);
  EXPECT_TRUE(sync.leave(1));
  EXPECT_EQ(sync.updates(), 1);
  EXPECT_EQ(sync.join(1), 1) << "it comes back at the step of the others";
  PushClock stale = clock_of({Consistency::stale, 1}, 2);
  for (int64_t step = 0; step < 2; ++step) stale.push(0, step);
  EXPECT_FALSE(stale.may_begin(0, 2));
  EXPECT_FALSE(stale.leave(1));
  EXPECT_TRUE(stale.may_begin(0, 2));
  EXPECT_EQ(stale.join(1), 2);
}

TEST(PushClock, AWorkerThatHasPushedAndLeftStandsForNobodyElse) {
  PushClock clock = clock_of({Consistency::sync}, 3);
  EXPECT_EQ(clock.push(2, 0), Verdict::gather);
  EXPECT_FALSE(clock.leave(2));
  EXPECT_EQ(clock.push(0, 0), Verdict::gather) << "worker 1 has not pushed";
  EXPECT_EQ(clock.push(1, 0), Verdict::complete);
}

TEST(PushClock, TheModeChangesWhileWorkersRun) {
  PushClock clock = clock_of({Consistency::stale, 3}, 2);
  for (int64_t step = 0; step < 3; ++step) clock.push(0, step);
  EXPECT_FALSE(clock.change({Consistency::sync}));
  EXPECT_EQ(clock.push(1, 0), Verdict::late) << "it was computed for a step of before";
  EXPECT_EQ(clock.step_to_begin(1, 1), 3);
  EXPECT_EQ(clock.push(0, 3), Verdict::gather);
  EXPECT_TRUE(clock.change({Consistency::async})) << "what was gathered is an update";
  EXPECT_EQ(clock.push(0, 4), Verdict::update);
}

TEST(PushClock, ASecondPushOfAWorkerDoesNotTakeThePlaceOfTheFirst) {
  PushClock clock = clock_of({Consistency::sync}, 2);
  EXPECT_EQ(clock.push(0, 0), Verdict::gather);
  EXPECT_THAT(message_of(ErrorCode::invalid_argument, [&] { clock.push(0, 1); }),
              AllOf(HasSubstr("worker 0 pushes its step 1"), HasSubstr("update of step 0")));
  EXPECT_EQ(clock.push(1, 0), Verdict::complete);
}

TEST(PushClock, AWorkerThatWasAheadComesBackToSynchronousSteps) {
  PushClock clock = clock_of({Consistency::async}, 2);
  for (int64_t step = 0; step < 4; ++step) clock.push(1, step);
  clock.leave(1);
  clock.change({Consistency::sync});
  EXPECT_EQ(clock.join(1), 4);
  EXPECT_EQ(clock.step_to_begin(0, 0), 4);
  EXPECT_TRUE(clock.may_begin(0, 4) && clock.may_begin(1, 4));
}

TEST(PushClock, AWorkerThatLeftStepsOutGoesOnInAnyMode) {
  PushClock clock = clock_of({Consistency::sync, 0, 1}, 3);
  for (int64_t step = 0; step < 2; ++step)
    for (const int worker : {1, 2}) clock.push(worker, step);
  EXPECT_EQ(clock.push(0, 0), Verdict::late);
  EXPECT_EQ(clock.step_to_begin(0, 1), 2);
  clock.change({Consistency::async});
  EXPECT_EQ(clock.push(0, 2), Verdict::update);
}

TEST(PushClock, AnotherServerGoesOnFromItsText) {
  PushClock clock = clock_of({Consistency::sync, 0, 1}, 3);
  clock.push(1, 0);
  clock.leave(2);
  EXPECT_EQ(PushClock::from_json(Json::parse(clock.to_json().dump())), clock);
}

TEST(PushClock, RefusesPushesThatCannotBe) {
  PushClock clock = clock_of({Consistency::async}, 1);
  EXPECT_THAT(message_of(ErrorCode::invalid_argument, [&] { clock.push(3, 0); }),
              AllOf(HasSubstr("worker 3"), HasSubstr("not joined")));
  EXPECT_THAT(message_of(ErrorCode::invalid_argument, [&] { clock.push(0, 2); }),
              AllOf(HasSubstr("worker 0"), HasSubstr("step 2")));
}

TEST(PushClock, RefusesOptionsThatDoNotFit) {
  const auto refusal = [](const ConsistencyOptions& options, int workers) {
    return message_of(ErrorCode::invalid_argument, [&] { check(options, workers); });
  };
  EXPECT_THAT(refusal({Consistency::stale, -1}, 2), HasSubstr("ps.staleness is -1"));
  EXPECT_THAT(refusal({Consistency::async, 2}, 2), HasSubstr("ps.consistency=stale"));
  EXPECT_THAT(refusal({Consistency::async, 0, 1}, 2), HasSubstr("ps.consistency=sync"));
  EXPECT_THAT(refusal({Consistency::sync, 0, 2}, 2), HasSubstr("ps.backup_workers is 2"));
  EXPECT_THAT(message_of(ErrorCode::invalid_argument, [] { consistency_from_string("ssp"); }),
              HasSubstr("delay_compensated"));
  check({Consistency::sync, 0, 1}, 2);
}

// ---- Exploration ----

struct Space {
  ConsistencyOptions options;
  int workers = 2;
  int64_t steps = 3;
  int losses = 0;        // Workers that may leave while they compute, and come back.
  bool repeats = false;  // Whether a push may be sent twice.
  // Whether the clock may be lost, and a copy that follows its updates takes its place.
  bool is_mortal = false;
};

// A worker waits to begin its step, or computes it.
struct WorkerState {
  bool is_there = true, computes = false, has_pushed = false;
  int64_t step = 0, pushed = -1;  // The step of a push that may be sent again; -1: none.
  // The pushes of each worker that its parameters have: a set, because updates may drop some.
  std::set<std::pair<int, int64_t>> seen;
  auto operator<=>(const WorkerState&) const = default;
};

struct Everything {
  PushClock clock;
  std::vector<WorkerState> workers;
  std::set<std::pair<int, int64_t>> applied, gathered, dropped;
  int losses = 0;
  // The updates that the copy has not heard of. No worker acts by them.
  PushClock copy;
  std::deque<std::set<std::pair<int, int64_t>>> untold;
  bool has_lost_clock = false;

  std::string key() const {
    std::string text = clock.to_json().dump() + " " + std::to_string(losses);
    for (const WorkerState& worker : workers) {
      text += fmt_of(worker.seen) + (worker.computes ? "c" : "w") + (worker.is_there ? "" : "-") +
              std::to_string(worker.pushed) + "/" + std::to_string(worker.step);
    }
    text += "|" + fmt_of(applied) + fmt_of(gathered) + fmt_of(dropped);
    for (const auto& update : untold) text += fmt_of(update);
    return text + (has_lost_clock ? "!" : copy.to_json().dump());
  }
  static std::string fmt_of(const std::set<std::pair<int, int64_t>>& pushes) {
    std::string text = "{";
    for (const auto& [worker, step] : pushes)
      text += std::to_string(worker) + "." + std::to_string(step) + " ";
    return text + "}";
  }
};

class PushClockExploration : public testing::TestWithParam<Space> {
 protected:
  // A worker that begins a step must have seen some pushes, and may not have seen others.
  void expect_bound(const Everything& now, int worker) {
    const Space& space = GetParam();
    const WorkerState& mine = now.workers[static_cast<size_t>(worker)];
    const ConsistencyOptions& options = space.options;
    const bool is_sync = options.consistency == Consistency::sync;
    for (int other = 0; other < space.workers; ++other) {
      const WorkerState& theirs = now.workers[static_cast<size_t>(other)];
      // Every push of `other` before this step must be there, as far as the worker made it.
      int64_t until = other == worker ? mine.step : 0;
      if (is_sync) until = mine.step;
      if (options.consistency == Consistency::stale && other != worker)
        until = mine.step - options.staleness;
      for (int64_t step = 0; step < std::min(until, theirs.step); ++step) {
        const std::pair push(other, step);
        const bool made = now.applied.contains(push) || now.gathered.contains(push);
        const bool excused = now.dropped.contains(push) || !made;
        EXPECT_TRUE(excused || mine.seen.contains(push))
            << "worker " << worker << " begins " << mine.step << " without " << other << "."
            << step << "\n"
            << now.key();
      }
      if (options.consistency == Consistency::stale && theirs.is_there) {
        // It may be about to send a push again that counts already.
        const bool sends_again = now.applied.contains({other, theirs.step});
        EXPECT_LE(mine.step - theirs.step - sends_again, options.staleness) << now.key();
      }
      if (is_sync) {
        for (const auto& [from, step] : mine.seen) EXPECT_LT(step, mine.step) << now.key();
      }
    }
  }

  void count(Everything& now, const std::pair<int, int64_t>& push, Verdict verdict) {
    EXPECT_FALSE(verdict != Verdict::repeated && now.applied.contains(push))
        << "a push counts twice: " << now.key();
    EXPECT_TRUE(verdict != Verdict::late || GetParam().options.backup_workers > 0)
        << "a push of a worker that others had to wait for is dropped: " << now.key();
    switch (verdict) {
      case Verdict::update:
        now.gathered.insert(push);
        apply_gathered(now);
        break;
      case Verdict::gather: now.gathered.insert(push); break;
      case Verdict::complete:
        now.gathered.insert(push);
        apply_gathered(now);
        break;
      case Verdict::late: now.dropped.insert(push); break;
      case Verdict::repeated: break;
    }
  }
  static void apply_gathered(Everything& now) {
    now.applied.insert(now.gathered.begin(), now.gathered.end());
    for (const auto& push : now.gathered) now.dropped.erase(push);
    if (!now.has_lost_clock) now.untold.push_back(now.gathered);
    now.gathered.clear();
  }

  static void tell_copy(Everything& now) {
    std::vector<PushClock::Pushed> update;
    for (const auto& [worker, step] : now.untold.front()) update.push_back({worker, step});
    now.untold.pop_front();
    now.copy.follow(update);
  }

  // The updates that the copy has not heard of never happened. Workers that wait push again.
  static void lose_clock(Everything& now) {
    now.has_lost_clock = true;
    now.clock = now.copy;
    for (const auto& update : now.untold)
      for (const auto& push : update) now.applied.erase(push);
    now.untold.clear();
    now.gathered.clear();
    for (WorkerState& worker : now.workers) {
      worker.pushed = -1;
      if (!worker.is_there || worker.computes || !worker.has_pushed) continue;
      --worker.step;
      worker.computes = true;
    }
  }

  std::vector<Everything> next_of(const Everything& now) {
    const Space& space = GetParam();
    std::vector<Everything> next;
    for (int i = 0; i < space.workers; ++i) {
      const WorkerState& worker = now.workers[static_cast<size_t>(i)];
      const auto change = [&](auto&& act) {
        Everything then = now;
        act(then, then.workers[static_cast<size_t>(i)]);
        next.push_back(std::move(then));
      };
      // A worker that comes back after the loss of a clock begins a generation of the job.
      if (!worker.is_there && space.is_mortal) continue;
      if (!worker.is_there) {
        change([&](Everything& then, WorkerState& mine) {
          mine.step = std::max(then.clock.join(i), mine.step);
          mine.is_there = true;
          mine.computes = mine.has_pushed = false;
        });
        continue;
      }
      PushClock asked = now.clock;
      if (now.has_lost_clock) asked.resume(i, worker.step);
      if (!worker.computes && worker.step < space.steps &&
          (now.untold.empty() || !space.is_mortal) &&
          asked.may_begin(i, asked.step_to_begin(i, worker.step)))
        change([&](Everything& then, WorkerState& mine) {
          then.clock = asked;
          mine.step = then.clock.step_to_begin(i, mine.step);
          mine.computes = true;
          mine.seen = then.applied;
          expect_bound(then, i);
        });
      if (worker.computes)
        change([&](Everything& then, WorkerState& mine) {
          if (then.has_lost_clock) then.clock.resume(i, mine.step);
          count(then, {i, mine.step}, then.clock.push(i, mine.step));
          mine.computes = false;
          mine.has_pushed = true;
          mine.pushed = space.repeats ? mine.step : -1;
          ++mine.step;
        });
      if (worker.pushed >= 0)
        change([&](Everything& then, WorkerState& mine) {
          EXPECT_EQ(then.clock.push(i, mine.pushed), Verdict::repeated) << now.key();
          mine.pushed = -1;
        });
      if (now.losses < space.losses && now.clock.workers() > 1)
        change([&](Everything& then, WorkerState& mine) {
          ++then.losses;
          mine.is_there = mine.computes = false;
          mine.pushed = -1;
          if (then.clock.leave(i)) apply_gathered(then);
          then.copy.leave(i);
        });
    }
    if (space.is_mortal && !now.has_lost_clock) {
      next.push_back(now);
      lose_clock(next.back());
      if (!now.untold.empty()) {
        next.push_back(now);
        tell_copy(next.back());
      }
    }
    return next;
  }
};

TEST_P(PushClockExploration, KeepsItsBoundAndNobodyWaitsForEver) {
  const Space& space = GetParam();
  Everything first{.clock = clock_of(space.options, space.workers),
                   .copy = clock_of(space.options, space.workers)};
  first.workers.resize(static_cast<size_t>(space.workers));
  std::set<std::string> known = {first.key()};
  std::deque<Everything> waiting = {first};
  size_t ends = 0;
  while (!waiting.empty() && !HasFailure()) {
    const Everything now = std::move(waiting.front());
    waiting.pop_front();
    const std::vector<Everything> next = next_of(now);
    const bool all_done =
        std::all_of(now.workers.begin(), now.workers.end(), [&](const WorkerState& worker) {
          if (!worker.is_there) return space.is_mortal;
          return !worker.computes && worker.step >= space.steps;
        });
    ends += all_done;
    EXPECT_TRUE(all_done || !next.empty()) << "all wait: " << now.key();
    for (const Everything& each : next)
      if (known.insert(each.key()).second) waiting.push_back(each);
  }
  EXPECT_GT(ends, 0u);
  RecordProperty("states", static_cast<int>(known.size()));
}

INSTANTIATE_TEST_SUITE_P(
    Spaces, PushClockExploration,
    testing::Values(Space{{Consistency::sync}, 3, 3}, Space{{Consistency::sync}, 2, 4, 1, true},
                    Space{{Consistency::sync}, 3, 2, 1}, Space{{Consistency::sync, 0, 1}, 3, 3},
                    Space{{Consistency::sync, 0, 1}, 3, 2, 1, true},
                    Space{{Consistency::stale, 0}, 3, 3}, Space{{Consistency::stale, 1}, 3, 3},
                    Space{{Consistency::stale, 2}, 2, 4, 1, true},
                    Space{{Consistency::stale, 1}, 3, 2, 1}, Space{{Consistency::async}, 2, 4},
                    Space{{Consistency::delay_compensated}, 2, 3, 1, true},
                    Space{{Consistency::sync}, 3, 2, 0, false, true},
                    Space{{Consistency::sync}, 2, 3, 1, false, true},
                    Space{{Consistency::sync, 0, 1}, 3, 2, 0, false, true},
                    Space{{Consistency::stale, 1}, 3, 2, 0, false, true},
                    Space{{Consistency::stale, 0}, 2, 3, 1, false, true},
                    Space{{Consistency::async}, 2, 3, 1, false, true}));

}  // namespace
}  // namespace trireme::plan::push_clock_test
