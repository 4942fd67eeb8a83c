#include <gtest/gtest.h>
#include <trireme/monitor/run_state.h>
#include <limits>

namespace trireme::monitor::run_state_test {
namespace {

RunState::TimePoint at(double seconds) {
  return RunState::TimePoint(std::chrono::duration_cast<std::chrono::steady_clock::duration>(
      std::chrono::duration<double>(seconds)));
}

TEST(RateMeter, AveragesTheLastTwoSeconds) {
  RateMeter meter;
  EXPECT_FALSE(meter.samples_per_second());
  meter.add(100, 1.0);
  EXPECT_DOUBLE_EQ(*meter.samples_per_second(), 100);
  for (int i = 0; i < 8; ++i) meter.add(100, 0.25);
  EXPECT_DOUBLE_EQ(*meter.samples_per_second(), 400);
}

TEST(RateMeter, KeepsAStepLongerThanItsWindow) {
  RateMeter meter;
  meter.add(10, 0.1);
  meter.add(100, 5.0);
  EXPECT_DOUBLE_EQ(*meter.samples_per_second(), 20);
}

TEST(RateMeter, IgnoresStepsWithoutAMeasuredTime) {
  RateMeter meter;
  meter.add(100, 0);
  meter.add(100, -1);
  meter.add(100, std::numeric_limits<double>::infinity());
  EXPECT_FALSE(meter.samples_per_second());
}

TEST(RunState, CountsEpochsFromOneAndRoundsThemUp) {
  EXPECT_EQ(RunState({.total_steps = 45, .steps_per_epoch = 10}).view().epochs, 5);
  EXPECT_EQ(RunState({.total_steps = 45, .steps_per_epoch = 10}).view().epoch, 1);
  EXPECT_EQ(RunState({.total_steps = 45, .first_step = 25, .steps_per_epoch = 10}).view().epoch,
            3);
  EXPECT_EQ(RunState({.total_steps = 40, .first_step = 40, .steps_per_epoch = 10}).view().epoch,
            4);
  EXPECT_EQ(RunState({.steps_per_epoch = 10}).view().epochs, 0);
}

TEST(RunState, PredictsTheEndFromTheStepsAfterTheFirst) {
  RunState state({.total_steps = 110, .steps_per_epoch = 10});
  state.step({.step = 1, .epoch = 0}, at(5));
  EXPECT_FALSE(state.view().seconds_left);
  state.step({.step = 11, .epoch = 1}, at(6));
  EXPECT_NEAR(*state.view().seconds_left, 9.9, 1e-6);
  state.step({.step = 110, .epoch = 10}, at(16));
  EXPECT_NEAR(*state.view().seconds_left, 0, 1e-6);
  EXPECT_TRUE(state.at_run_end());
  EXPECT_TRUE(state.at_epoch_end());
}

TEST(RunState, AResumedRunPredictsFromItsOwnSteps) {
  RunState state({.total_steps = 200, .first_step = 100});
  state.step({.step = 101}, at(0));
  state.step({.step = 151}, at(1));
  EXPECT_NEAR(*state.view().seconds_left, 0.98, 1e-6);
}

TEST(RunState, MeanLossWeighsBySamplesOfOneEpoch) {
  RunState state({.steps_per_epoch = 2});
  EXPECT_FALSE(state.mean_loss(0));
  state.step({.step = 1, .epoch = 0, .loss = 100, .samples = 64}, at(0));
  state.step({.step = 3, .epoch = 1, .loss = 1, .samples = 30}, at(1));
  state.step({.step = 4, .epoch = 1, .loss = 2, .samples = 10}, at(2));
  EXPECT_DOUBLE_EQ(*state.mean_loss(1), 1.25);
  EXPECT_FALSE(state.mean_loss(0));
}

TEST(RunState, KnowsTheShareOfTheLastStepsWithoutData) {
  RunState state(RunStart{});
  EXPECT_EQ(state.view().waited_share, 0);
  state.step({.step = 1, .samples = 10, .seconds = 0.5, .waited = 0.25}, at(1));
  EXPECT_DOUBLE_EQ(state.view().waited_share, 0.5);
  state.step({.step = 2, .samples = 10, .seconds = 1.5, .waited = 0.75}, at(2));
  EXPECT_DOUBLE_EQ(state.view().waited_share, 0.5);
  state.step({.step = 3, .samples = 10, .seconds = 1, .waited = 0}, at(3));
  EXPECT_DOUBLE_EQ(state.view().waited_share, 0.3);  // The first step is too old.
}

TEST(RunState, PredictsNothingWithoutAKnownEnd) {
  RunState state(RunStart{});
  state.step({.step = 1}, at(0));
  state.step({.step = 2}, at(1));
  EXPECT_FALSE(state.view().seconds_left);
  EXPECT_FALSE(state.at_run_end());
  EXPECT_FALSE(state.at_epoch_end());
}

}  // namespace
}  // namespace trireme::monitor::run_state_test
