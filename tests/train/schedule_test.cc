#include <gmock/gmock.h>

#include <trireme/train/schedule.h>

#include "../base/expect_error.h"

namespace trireme::schedule_test {
namespace {

using ::testing::HasSubstr;

TEST(Schedule, ConstantStaysAtTheBaseRate) {
  const ScheduleOptions options;
  check(options);
  for (const int64_t step : {0, 1, 1000}) EXPECT_EQ(rate_factor(options, step), 1.0);
}

TEST(Schedule, WarmUpRisesLinearlyBeforeEverythingElse) {
  const ScheduleOptions options{.warmup_steps = 4};
  EXPECT_DOUBLE_EQ(rate_factor(options, 0), 0.2);
  EXPECT_DOUBLE_EQ(rate_factor(options, 1), 0.4);
  EXPECT_DOUBLE_EQ(rate_factor(options, 3), 0.8);
  EXPECT_DOUBLE_EQ(rate_factor(options, 4), 1.0);
}

TEST(Schedule, StepDecaysAtItsIntervalAfterTheWarmUp) {
  const ScheduleOptions options{
      .name = "step", .gamma = 0.5, .every_steps = 10, .warmup_steps = 2};
  check(options);
  EXPECT_DOUBLE_EQ(rate_factor(options, 2), 1.0);
  EXPECT_DOUBLE_EQ(rate_factor(options, 11), 1.0);
  EXPECT_DOUBLE_EQ(rate_factor(options, 12), 0.5);
  EXPECT_DOUBLE_EQ(rate_factor(options, 32), 0.125);
}

TEST(Schedule, CosineFallsToItsMinimumAndStaysThere) {
  const ScheduleOptions options{
      .name = "cosine", .minimum = 0.1, .warmup_steps = 10, .total_steps = 110};
  check(options);
  EXPECT_DOUBLE_EQ(rate_factor(options, 10), 1.0);
  EXPECT_NEAR(rate_factor(options, 60), 0.55, 1e-12);
  EXPECT_NEAR(rate_factor(options, 35), 0.1 + 0.9 * 0.5 * (1 + std::sqrt(0.5)), 1e-12);
  EXPECT_NEAR(rate_factor(options, 110), 0.1, 1e-12);
  EXPECT_NEAR(rate_factor(options, 500), 0.1, 1e-12);
}

TEST(Schedule, CosineOfARunThatIsAllWarmUpIsDefined) {
  EXPECT_NEAR(rate_factor({.name = "cosine", .warmup_steps = 5, .total_steps = 5}, 5), 1.0, 1e-12);
}

TEST(Schedule, RefusesOptionsThatItDoesNotKnow) {
  const auto refusal = [](const ScheduleOptions& options) {
    return message_of(ErrorCode::invalid_argument, [&] { check(options); });
  };
  EXPECT_THAT(refusal({.name = "linear"}), HasSubstr("linear"));
  EXPECT_THAT(refusal({.warmup_steps = -1}), HasSubstr("schedule.warmup_steps is \"-1\""));
  EXPECT_THAT(refusal({.name = "step", .every_steps = 0}), HasSubstr("schedule.every"));
  EXPECT_THAT(refusal({.name = "cosine", .minimum = 1.5}),
              HasSubstr("schedule.minimum is \"1.5\""));
  EXPECT_THAT(refusal({.name = "cosine", .minimum = -0.5}),
              HasSubstr("schedule.minimum is \"-0.5\""));
}

}  // namespace
}  // namespace trireme::schedule_test
