// Expectations about a run with injected faults.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <trireme/train/expectations.h>
#include <cmath>
#include <functional>

#include "../base/expect_error.h"

namespace trireme::expectations_test {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(Expectations, AreReadFromWords) {
  EXPECT_THAT(parse_expectations("same-loss, exactly-once"),
              ElementsAre(Expectation::same_loss, Expectation::exactly_once));
  EXPECT_THAT(parse_expectations("exactly-once,exactly-once"),
              ElementsAre(Expectation::exactly_once));
  EXPECT_THAT(parse_expectations("none"), IsEmpty());
  EXPECT_THAT(parse_expectations(" "), IsEmpty());
  EXPECT_THAT(message_of(ErrorCode::invalid_argument, [] { parse_expectations("same-los"); }),
              AllOf(HasSubstr("'same-los'"), HasSubstr("try: same-loss")));
  EXPECT_THAT(message_of(ErrorCode::invalid_argument, [] { parse_expectations("same-loss,"); }),
              HasSubstr("''"));
}

class SameLoss : public ::testing::Test {
 protected:
  static Json report(
      int steps, const std::function<double(int step)>& change = [](int) { return 0.0; }) {
    Json losses = Json::array();
    for (int step = 1; step <= steps; ++step)
      losses.push_back(2.0 / std::sqrt(step) * (1 + change(step)));
    return {{"loss_history", losses}, {"parameters_sha256", "ab"}};
  }
};

TEST_F(SameLoss, HoldsForTheSameBits) {
  const Finding finding = same_loss(report(200), report(200), false);
  EXPECT_TRUE(finding.holds);
  EXPECT_THAT(finding.describe(),
              HasSubstr("same-loss: holds: 200 losses, equal to the last bit, parameters too"));
}

TEST_F(SameLoss, HoldsForRoundingThatGrowsAfterTheFault) {
  const Json run = report(400, [](int step) {
    return step < 80 ? 0 : 3e-6 * std::exp2(std::min(12.0, std::max(0, step - 130) / 15.0));
  });
  const Finding finding = same_loss(run, report(400), false);
  EXPECT_TRUE(finding.holds) << finding.what;
  EXPECT_THAT(finding.what, HasSubstr("from step 80 on"));
  EXPECT_FALSE(same_loss(run, report(400), true).holds) << "float64 promises more";
}

TEST_F(SameLoss, BreaksWhereALossJumps) {
  const Json run = report(200, [](int step) { return step == 81 ? 1e-3 : 0; });
  const Finding finding = same_loss(run, report(200), false);
  EXPECT_FALSE(finding.holds);
  EXPECT_THAT(finding.describe(), AllOf(HasSubstr("DOES NOT HOLD"), HasSubstr("step 81"),
                                        HasSubstr("difference of 0.001")));
}

TEST_F(SameLoss, BreaksWhereStepsAreMissingOrNotNumbers) {
  EXPECT_THAT(same_loss(report(199), report(200), false).what,
              HasSubstr("199 steps, 200 without faults"));
  Json run = report(10);
  run["loss_history"][4] = nullptr;
  EXPECT_THAT(same_loss(run, report(10), false).what, HasSubstr("step 5 is null"));
  EXPECT_TRUE(same_loss(run, run, false).holds) << "without faults it is the same";
}

TEST(ExactlyOnce, IsReadFromTheReport) {
  const auto report = [](int expected, int once, int lost, int repeated) {
    return Json{
        {"samples",
         {{"expected", expected}, {"seen_once", once}, {"lost", lost}, {"repeated", repeated}}}};
  };
  EXPECT_TRUE(exactly_once(report(100, 100, 0, 0)).holds);
  EXPECT_FALSE(exactly_once(report(100, 90, 10, 0)).holds);
  EXPECT_FALSE(exactly_once(report(100, 90, 0, 10)).holds);
  EXPECT_FALSE(exactly_once(report(100, 99, 0, 0)).holds);
  EXPECT_FALSE(exactly_once(Json::object()).holds);
}

}  // namespace
}  // namespace trireme::expectations_test
