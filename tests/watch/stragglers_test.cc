#include <trireme/watch/stragglers.h>

#include <gmock/gmock.h>
#include <cmath>
#include <random>

namespace trireme::watch::stragglers_test {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

// Workers that step together. `cost(worker, phase)` is the time in seconds that a phase takes a
// worker. The worker waits for the rest of the slowest worker's step.
struct Steps {
  explicit Steps(int workers, StragglerOptions options = {})
      : stragglers(options, workers), times(static_cast<size_t>(workers)) {}

  template <typename Cost>
  std::vector<Straggler> run(int64_t steps, Cost cost) {
    std::vector<Straggler> changes;
    for (int64_t i = 0; i < steps; ++i) {
      double slowest = 0;
      std::vector<double> work;
      for (size_t worker = 0; worker < times.size(); ++worker) {
        work.push_back(0);
        for (const Phase phase :
             {Phase::data, Phase::forward, Phase::backward, Phase::optimizer}) {
          const double seconds = cost(static_cast<int>(worker), phase);
          times[worker].seconds[static_cast<size_t>(phase)] += seconds;
          work.back() += seconds;
        }
        slowest = std::max(slowest, work.back());
      }
      ++step;
      now += std::chrono::duration_cast<Stragglers::Time::duration>(
          std::chrono::duration<double>(slowest));
      for (size_t worker = 0; worker < times.size(); ++worker) {
        times[worker].squares += work[worker] * work[worker];
        times[worker].waiting += slowest - work[worker];
        times[worker].steps = step;
        stragglers.note(static_cast<int>(worker), times[worker], step + 1);
      }
      for (const Straggler& change : stragglers.judge(now)) changes.push_back(change);
    }
    return changes;
  }

  Stragglers stragglers;
  std::vector<PhaseTimes> times;
  Stragglers::Time now{};
  int64_t step = 0;
};

double even(int, Phase phase) {
  return phase == Phase::forward ? 0.012 : phase == Phase::backward ? 0.02 : 0.001;
}
double slow_forward_of_two(int worker, Phase phase) {
  return even(worker, phase) + (worker == 2 && phase == Phase::forward ? 0.023 : 0);
}

TEST(Stragglers, AreReportedOnceWithTheirSlowPhase) {
  Steps steps(4);
  EXPECT_THAT(steps.run(50, even), IsEmpty());
  const auto found = steps.run(200, slow_forward_of_two);
  ASSERT_THAT(found, SizeIs(1));
  EXPECT_EQ(found[0].describe("rank 2"),
            "rank 2 is a straggler: its forward takes 35 ms a step, the others' 12 ms; the others "
            "wait 23 ms a step for it");
  EXPECT_EQ(found[0].worker, 2);
  EXPECT_LE(found[0].from_step, 50 + 45);
  EXPECT_EQ(found[0].to_json(2).at("phase"), "forward");
}

TEST(Stragglers, AreReportedAgainWhenTheyAreOver) {
  Steps steps(4);
  steps.run(100, slow_forward_of_two);
  const auto over = steps.run(200, even);
  ASSERT_THAT(over, SizeIs(1));
  EXPECT_THAT(over[0].describe("rank 2"),
              HasSubstr("rank 2 has not been a straggler since step "));
  EXPECT_THAT(steps.stragglers.found(), SizeIs(1));
  EXPECT_GT(steps.stragglers.found()[0].to_step, 100);
}

TEST(Stragglers, AreComparedWithTheOtherOfTwo) {
  Steps steps(2);
  const auto found = steps.run(100, [](int worker, Phase phase) {
    return worker == 0 && phase == Phase::data ? 0.05 : even(worker, phase);
  });
  ASSERT_THAT(found, SizeIs(1));
  EXPECT_EQ(found[0].worker, 0);
  EXPECT_EQ(found[0].phase, Phase::data);
}

TEST(Stragglers, AreNotMadeByNoise) {
  std::mt19937 random(7);
  // Every twentieth step takes four times as long as usual, or longer.
  std::lognormal_distribution<double> factor(0, 0.8);
  Steps steps(4);
  EXPECT_THAT(steps.run(20'000, [&](int worker,
                                    Phase phase) { return even(worker, phase) * factor(random); }),
              IsEmpty());
}

TEST(Stragglers, AreNotMadeByOneLongStep) {
  Steps steps(3);
  for (int i = 0; i < 20; ++i) {
    EXPECT_THAT(steps.run(1,
                          [](int worker, Phase phase) {
                            return worker == 1 && phase == Phase::data ? 0.8 : even(worker, phase);
                          }),
                IsEmpty());
    EXPECT_THAT(steps.run(60, even), IsEmpty());
  }
}

TEST(Stragglers, AreNotFoundWhenTheDifferenceIsSmallBesideTheStep) {
  Steps steps(2);
  EXPECT_THAT(steps.run(5000,
                        [](int worker, Phase phase) {
                          return phase == Phase::forward ? (worker == 0 ? 0.0009 : 0.0003) : 0.0;
                        }),
              IsEmpty());
}

TEST(Stragglers, AreNotFoundWhenTheFactorIsZero) {
  Steps steps(4, {.factor = 0});
  EXPECT_THAT(steps.run(500, slow_forward_of_two), IsEmpty());
}

TEST(Stragglers, AreFoundAtTheEndOfAShortRun) {
  Steps steps(4);
  EXPECT_THAT(steps.run(15, slow_forward_of_two), IsEmpty());
  const auto found = steps.stragglers.conclude();
  ASSERT_THAT(found, SizeIs(1));
  EXPECT_EQ(found[0].worker, 2);
  EXPECT_THAT(steps.stragglers.conclude(), IsEmpty());
  EXPECT_NEAR(steps.stragglers.mean_of(2)->of(Phase::forward), 0.035, 1e-9);
}

}  // namespace
}  // namespace trireme::watch::stragglers_test
