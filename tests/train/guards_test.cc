// The values that trip a guard, and the result under each policy.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <trireme/train/guards.h>
#include <cmath>
#include <limits>

#include "../base/expect_error.h"

namespace trireme::guards_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

Guard::Step step(int64_t number, double loss, double norm = 1.0) {
  Guard::Step step;
  step.number = number;
  step.position = {0, 10 * number};
  step.loss = loss;
  step.gradient_norm = norm;
  if (!std::isfinite(loss)) step.nonfinite_ranks = {1};
  step.nonfinite_gradients = !std::isfinite(norm);
  return step;
}

Guard guard_of(const std::string& policy, double spike = 4, int64_t window = 5) {
  return Guard({policy, spike, window, 0});
}
void settle(Guard& guard, int steps = 5) {
  for (int i = 1; i <= steps; ++i)
    EXPECT_EQ(guard.judge(step(i, 2.0 + 0.1 * i)).action, GuardAction::accept);
}

TEST(Guard, StopsAtALossThatIsNotANumberWhateverTheOptions) {
  Guard guard({});
  EXPECT_FALSE(guard.accepts(std::nan(""), -1));
  const GuardVerdict verdict = guard.judge(step(7, std::nan("")));
  EXPECT_EQ(verdict.action, GuardAction::stop);
  EXPECT_THAT(
      verdict.error().what(),
      AllOf(HasSubstr("the loss of step 7 is NaN or infinite on rank 1; nothing was updated"),
            HasSubstr("try: a smaller optimizer.lr")));
  EXPECT_THAT(guard.judge(step(8, 1.0, kInfinity)).reason,
              HasSubstr("the gradients of step 8 are NaN or infinite"));
  EXPECT_EQ(guard.judge(step(9, 1e30, 1e30)).action, GuardAction::accept)
      << "spikes are not looked for";
}

TEST(Guard, FindsASpikeOfTheLossAndOfTheNorm) {
  Guard guard = guard_of("skip");
  settle(guard);
  EXPECT_TRUE(guard.accepts(9.1, 3.9));
  EXPECT_FALSE(guard.accepts(9.3, 1));
  EXPECT_FALSE(guard.accepts(2, 4.1));
  EXPECT_TRUE(guard.accepts(2, -1)) << "a norm that was not computed";
  EXPECT_THAT(guard.judge(step(6, 23)).reason,
              HasSubstr("the loss of step 6 is 23, 10 times the median of the last 5 steps"));
  EXPECT_THAT(guard.judge(step(7, 2, 8)).reason,
              HasSubstr("the gradient norm of step 7 is 8, 8 times the median"));
}

TEST(Guard, NothingIsASpikeBeforeTheWindowIsFull) {
  Guard guard = guard_of("stop");
  settle(guard, 4);
  EXPECT_TRUE(guard.accepts(1000, 1000));
}

TEST(Guard, AMedianThatIsNotPositiveIsIgnored) {
  Guard guard = guard_of("stop");
  for (int i = 1; i <= 9; ++i)
    EXPECT_EQ(guard.judge(step(i, -1.0 * i)).action, GuardAction::accept);
  EXPECT_TRUE(guard.accepts(100, 1));
}

TEST(Guard, ValuesThatTrippedAreNoPartOfTheMedian) {
  Guard guard = guard_of("skip");
  settle(guard);
  for (int i = 6; i < 12; ++i) {
    EXPECT_EQ(guard.judge(step(i, 100)).action, GuardAction::skip);
    EXPECT_EQ(guard.judge(step(i, 2)).action, GuardAction::accept);
  }
}

TEST(Guard, TheMedianFollowsALossThatRisesSlowly) {
  Guard guard = guard_of("stop");
  double loss = 1;
  for (int i = 1; i < 60; ++i)
    EXPECT_EQ(guard.judge(step(i, loss *= 1.3)).action, GuardAction::accept);
}

TEST(Guard, RollsBackOnceFromABatchAndThenSkipsIt) {
  Guard guard = guard_of("rollback");
  settle(guard);
  EXPECT_EQ(guard.judge(step(6, std::nan(""))).action, GuardAction::rollback);
  EXPECT_EQ(guard.judge(step(5, 2)).action, GuardAction::accept) << "done again";
  EXPECT_EQ(guard.judge(step(6, std::nan(""))).action, GuardAction::skip);
  EXPECT_EQ(guard.judge(step(7, std::nan(""))).action, GuardAction::rollback) << "another batch";
}

TEST(Guard, TenBatchesInARowEndTheRun) {
  Guard guard = guard_of("skip");
  for (int i = 1; i < 10; ++i)
    EXPECT_EQ(guard.judge(step(i, kInfinity)).action, GuardAction::skip);
  const GuardVerdict verdict = guard.judge(step(10, kInfinity));
  EXPECT_EQ(verdict.action, GuardAction::stop);
  EXPECT_THAT(verdict.reason, HasSubstr("for the 10th batch in a row"));
}

TEST(Guard, LeavesOverflowsToTheLossScaling) {
  Guard guard = guard_of("stop");
  Guard::Step overflow = step(3, 2, kInfinity);
  overflow.overflow_is_expected = true;
  EXPECT_EQ(guard.judge(overflow).action, GuardAction::accept);
  overflow.nonfinite_ranks = {0};
  EXPECT_EQ(guard.judge(overflow).action, GuardAction::stop) << "a loss is not scaled";
}

TEST(Guard, ContinuesFromItsState) {
  Guard guard = guard_of("stop");
  settle(guard);
  Guard again = guard_of("stop");
  EXPECT_TRUE(again.accepts(100, 1));
  again.load(Json::parse(guard.state().dump()));
  EXPECT_EQ(again.state(), guard.state());
  EXPECT_FALSE(again.accepts(100, 1));
  again.load("nonsense");
  EXPECT_TRUE(again.accepts(100, 1));
}

// A process that joins must decide as the others do.
TEST(Guard, IsTheSameInAProcessThatTakesItsState) {
  Guard guard = guard_of("rollback");
  settle(guard);
  EXPECT_EQ(guard.judge(step(6, std::nan(""))).action, GuardAction::rollback);
  Guard joined = guard_of("rollback");
  joined.load(Json::from_cbor(Json::to_cbor(guard.state())));
  EXPECT_EQ(joined.state(), guard.state());
  for (Guard* each : {&guard, &joined}) {
    EXPECT_EQ(each->judge(step(6, std::nan(""))).action, GuardAction::skip);
    // These are the third to the ninth trip in a row.
    for (int i = 7; i < 14; ++i)
      EXPECT_EQ(each->judge(step(i, std::nan(""))).action, GuardAction::rollback) << i;
    EXPECT_EQ(each->judge(step(14, std::nan(""))).action, GuardAction::stop);
  }
  EXPECT_EQ(joined.state(), guard.state());
}

TEST(Guard, ForgetsNothingThatTrippedWhenItGoesBack) {
  Guard guard = guard_of("rollback");
  const Json before = guard.state();
  settle(guard);
  EXPECT_EQ(guard.judge(step(6, std::nan(""))).action, GuardAction::rollback);
  guard.go_back(before);
  EXPECT_TRUE(guard.accepts(1000, 1000)) << "the window is empty, as it was";
  EXPECT_EQ(guard.judge(step(6, std::nan(""))).action, GuardAction::skip);
}

TEST(Guard, GoesBackThreeTimesWhereReplicasDiffer) {
  EXPECT_FALSE(guard_of("skip").may_go_back_as_replicas_differ());
  Guard guard = guard_of("rollback");
  for (int times = 0; times < 2; ++times) EXPECT_TRUE(guard.may_go_back_as_replicas_differ());
  Guard joined = guard_of("rollback");
  joined.load(guard.state());
  EXPECT_TRUE(joined.may_go_back_as_replicas_differ());
  EXPECT_FALSE(joined.may_go_back_as_replicas_differ());
}

TEST(Guard, TakesStateThatHasNoCounts) {
  Guard guard = guard_of("rollback");
  guard.load(
      {{"losses", {1, "two", 3.0}}, {"norms", Json()}, {"rolled_back_from", {{1}, {0, 5}}}});
  EXPECT_EQ(guard.state()["losses"], Json({1.0, 3.0}));
  EXPECT_EQ(guard.state()["rolled_back_from"], Json::parse("[[0,5]]"));
  EXPECT_EQ(guard.state()["tripped_in_a_row"], 0);
}

TEST(Guard, RefusesOptionsOutOfRange) {
  const auto refused = [](GuardOptions options) {
    return message_of(ErrorCode::invalid_argument, [&] { check(options); });
  };
  EXPECT_THAT(refused({.policy = "hope"}),
              AllOf(HasSubstr("guard.policy is \"hope\""), HasSubstr("stop, skip, rollback")));
  EXPECT_THAT(refused({.spike = 0.5}), HasSubstr("guard.spike is 0.5"));
  EXPECT_THAT(refused({.spike = 3, .window = 1}), HasSubstr("guard.window is \"1\""));
  EXPECT_THAT(refused({.check_replicas_every = -1}), HasSubstr("check_replicas_every is \"-1\""));
}

}  // namespace
}  // namespace trireme::guards_test
