// The decisions of an evaluator.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <trireme/train/evaluation_curve.h>
#include <cmath>
#include <limits>

namespace trireme::evaluation_curve_test {
namespace {

using ::testing::Pointee;

EvaluatedCheckpoint at(int64_t step, double loss, double accuracy = 0, int64_t written = 1) {
  return {{step, written}, {step, 0, loss, accuracy, 10}};
}

EvaluationCurve curve_of(const std::vector<double>& losses, EvaluatorOptions options = {}) {
  EvaluationCurve curve(std::move(options));
  for (size_t i = 0; i < losses.size(); ++i)
    curve.add(at(10 * static_cast<int64_t>(i + 1), losses[i]));
  return curve;
}

TEST(EvaluationCurve, TheOldestNewCheckpointIsNext) {
  EvaluationCurve curve({});
  EXPECT_EQ(curve.next({}), std::nullopt);
  EXPECT_EQ(curve.next({{30, 3}, {20, 2}})->step, 20);
  curve.add(at(20, 1, 0, 2));
  EXPECT_EQ(curve.next({{30, 3}, {20, 2}})->step, 30);
  EXPECT_EQ(curve.next({{20, 2}}), std::nullopt);
  // An older one that was passed over stays so.
  EXPECT_EQ(curve.next({{20, 2}, {10, 1}}), std::nullopt);
}

TEST(EvaluationCurve, ACheckpointThatTookAnothersPlaceIsEvaluatedAndReplacesItsValue) {
  EvaluationCurve curve({});
  curve.add(at(10, 1.0, 0, 1));
  curve.add(at(20, 0.5, 0, 2));
  EXPECT_EQ(curve.next({{20, 2}, {10, 7}}), (FoundCheckpoint{10, 7}));
  curve.add(at(10, 0.25, 0, 7));
  EXPECT_EQ(curve.next({{20, 2}, {10, 7}}), std::nullopt);
  EXPECT_EQ(curve.best()->found.step, 10);
  EXPECT_EQ(curve.summary()["evaluations"], 2);
}

TEST(EvaluationCurve, ASkippedCheckpointIsNotTriedAgainUnlessItIsAnotherOne) {
  EvaluationCurve curve({});
  curve.skip({10, 1});
  EXPECT_EQ(curve.next({{10, 1}}), std::nullopt);
  EXPECT_EQ(curve.next({{10, 2}}), (FoundCheckpoint{10, 2}));
}

TEST(EvaluationCurve, TheBestIsTheOldestOfEqualOnesAndNeverNaN) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(curve_of({}).best(), nullptr);
  EXPECT_EQ(curve_of({nan}).best(), nullptr);
  EXPECT_EQ(curve_of({nan, 2, 1, 1, 3}).best()->found.step, 30);
  EXPECT_EQ(curve_of({2, std::numeric_limits<double>::infinity()}).best()->found.step, 10);
  EvaluationCurve curve({.measure = "accuracy"});
  curve.add(at(10, 0.1, 0.8));
  curve.add(at(20, 0.9, 0.9));
  EXPECT_EQ(curve.best()->found.step, 20);
}

TEST(EvaluationCurve, PatienceCountsEvaluationsWithoutAnImprovement) {
  EXPECT_FALSE(curve_of({1, 2, 3, 4}).wants_stop());  // Without patience it never stops.
  EXPECT_FALSE(curve_of({1, 2}, {.patience = 2}).wants_stop());
  EXPECT_TRUE(curve_of({1, 2, 1}, {.patience = 2}).wants_stop());
  EXPECT_FALSE(curve_of({1, 2, 3, 0.5, 2}, {.patience = 2}).wants_stop());
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_TRUE(curve_of({nan, nan}, {.patience = 2}).wants_stop());
}

TEST(EvaluationCurve, SmallChangesAreNoImprovementsAndAddUp) {
  // Each is better than the one before, by less than the minimum.
  EXPECT_EQ(curve_of({1.0, 0.95, 0.92}, {.minimum_change = 0.1}).without_improvement(), 2);
  EXPECT_EQ(curve_of({1.0, 0.95, 0.89}, {.minimum_change = 0.1}).without_improvement(), 0);
  // The best one counts all the same.
  EXPECT_EQ(curve_of({1.0, 0.95}, {.minimum_change = 0.1}).best()->found.step, 20);
}

TEST(EvaluationCurve, LinesAreReadBackAndOthersAreNone) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (const double loss : {0.5, nan}) {
    const std::string line = EvaluationCurve::line_of(at(40, loss, 0.75, 123456789012345), 1.5);
    EXPECT_TRUE(line.ends_with('\n'));
    const auto back = EvaluationCurve::read(line);
    ASSERT_TRUE(back);
    EXPECT_EQ(back->checkpoint, (FoundCheckpoint{40, 123456789012345}));
    EXPECT_EQ(back->found.accuracy, 0.75);
    EXPECT_EQ(std::isnan(back->found.loss), std::isnan(loss));
    EXPECT_EQ(EvaluationCurve::read(line.substr(0, line.size() / 2)), std::nullopt);
  }
  EXPECT_EQ(EvaluationCurve::read(R"({"event": "step", "step": 1, "written": 3})"), std::nullopt);
}

TEST(EvaluationCurve, TheSummaryHasNullsBeforeThereIsABest) {
  EXPECT_EQ(curve_of({}).summary(), Json::parse(R"({"evaluations": 0, "newest_step": null,
    "best_step": null, "best_loss": null, "best_accuracy": null})"));
  EXPECT_EQ(curve_of({2, 1, 3}).summary()["best_step"], 20);
  EXPECT_EQ(curve_of({2, 1, 3}).summary()["newest_step"], 30);
}

}  // namespace
}  // namespace trireme::evaluation_curve_test
