// When a run stops whose evaluations no longer get better.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <trireme/train/early_stop.h>
#include <cmath>

#include "../base/expect_error.h"

namespace trireme::early_stop_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

monitor::EvalRecord found(int64_t step, double loss, double accuracy = 0) {
  return {.step = step, .loss = loss, .accuracy = accuracy, .metrics = {{"rmse", 10 * loss}}};
}

// The step after which a run with these losses at steps 10, 20, ... stops; 0: it does not.
int64_t stops_after(const std::vector<double>& losses, EarlyStopOptions options) {
  EarlyStop stop(options, shipped_measure(options.measure));
  int64_t step = 0;
  for (const double loss : losses) {
    stop.take(found(step += 10, loss));
    if (stop.wants_stop()) return step;
  }
  return 0;
}

TEST(EarlyStop, CountsEvaluationsInARowThatAreNotBetter) {
  EXPECT_EQ(stops_after({3, 2, 2, 2}, {.patience = 2}), 40);
  EXPECT_EQ(stops_after({3, 2, 2, 1, 2, 2}, {.patience = 2}), 60);
  EXPECT_EQ(stops_after({3, 2, 2, 1}, {.patience = 2}), 0);
  EXPECT_EQ(stops_after({3, 4, 5, 6}, {.patience = 0}), 0);
}

TEST(EarlyStop, AnImprovementIsLargerThanTheMinimumChange) {
  EXPECT_EQ(stops_after({3, 2.75, 2.5}, {.patience = 1, .minimum_change = 0.25}), 20);
  EXPECT_EQ(stops_after({3, 2.5, 2}, {.patience = 1, .minimum_change = 0.25}), 0);
}

TEST(EarlyStop, ALossThatIsNoNumberIsNoImprovement) {
  EXPECT_EQ(stops_after({kNaN, kNaN, 1}, {.patience = 2}), 20);
  EXPECT_EQ(stops_after({1, kNaN, 0.5, kNaN, kNaN}, {.patience = 2}), 50);
}

TEST(EarlyStop, FollowsAccuracyAndMetricsInTheirDirection) {
  EarlyStop by_accuracy({.patience = 1, .measure = "accuracy"}, shipped_measure("accuracy"));
  by_accuracy.take(found(1, 1, 0.5));
  by_accuracy.take(found(2, 2, 0.75));
  EXPECT_FALSE(by_accuracy.wants_stop());
  by_accuracy.take(found(3, 0.1, 0.75));
  EXPECT_TRUE(by_accuracy.wants_stop());
  EXPECT_THAT(by_accuracy.describe(), AllOf(HasSubstr("accuracy 0.75 of step 2 is the best"),
                                            HasSubstr("1 evaluation since is no better")));

  EarlyStop by_metric({.patience = 1, .measure = "rmse"}, {"rmse", true});
  by_metric.take(found(1, 1));
  by_metric.take(found(2, 2));
  EXPECT_FALSE(by_metric.wants_stop());
  by_metric.take(found(3, 2));
  EXPECT_TRUE(by_metric.wants_stop());
}

TEST(EarlyStop, GoesOnFromItsStateAndCountsAnEvaluationOnce) {
  const EarlyStopOptions options{.patience = 3};
  EarlyStop first(options, shipped_measure("loss"));
  for (const int64_t step : {10, 20, 30}) first.take(found(step, 1));
  EarlyStop second(options, shipped_measure("loss"));
  second.load(Json::parse(first.state().dump()));
  second.take(found(30, 1));
  EXPECT_FALSE(second.wants_stop());
  second.take(found(40, 1));
  EXPECT_TRUE(second.wants_stop());
  EarlyStop of_other(options, shipped_measure("accuracy"));
  of_other.load(first.state());
  of_other.take(found(40, 1, 0.1));
  EXPECT_FALSE(of_other.wants_stop()) << "another measure begins anew";
}

TEST(Measure, MustBeAValueOfTheEvaluations) {
  check_measure("early_stop.measure", "rmse", {"rmse"});
  EXPECT_THAT(
      message_of(ErrorCode::invalid_argument,
                 [] { check_measure("early_stop.measure", "acuracy", {"rmse"}); }),
      AllOf(HasSubstr("early_stop.measure is \"acuracy\""), HasSubstr("loss, accuracy, rmse")));
}

}  // namespace
}  // namespace trireme::early_stop_test
