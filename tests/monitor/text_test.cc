#include <gtest/gtest.h>
#include <trireme/monitor/text.h>
#include <limits>

namespace trireme::monitor::text_test {
namespace {

TEST(NumberText, LossHasFourSignificantDigits) {
  EXPECT_EQ(loss_text(0.123449), "0.1234");
  EXPECT_EQ(loss_text(2.3), "2.300");
  EXPECT_EQ(loss_text(1234.4), "1234");
  EXPECT_EQ(loss_text(0.00001), "1.000e-05");
  EXPECT_EQ(loss_text(std::numeric_limits<double>::quiet_NaN()), "nan");
  EXPECT_EQ(loss_text(std::numeric_limits<double>::infinity()), "inf");
}

TEST(NumberText, GroupsThousands) {
  EXPECT_EQ(grouped(0), "0");
  EXPECT_EQ(grouped(999), "999");
  EXPECT_EQ(grouped(1000), "1,000");
  EXPECT_EQ(grouped(1234567), "1,234,567");
  EXPECT_EQ(grouped(-123), "-123");
  EXPECT_EQ(grouped(-1234), "-1,234");
}

TEST(NumberText, RatesKeepThreeDigitsWhenSmall) {
  EXPECT_EQ(rate_text(12345.4), "12,345");
  EXPECT_EQ(rate_text(12.34), "12.3");
  EXPECT_EQ(rate_text(0.456), "0.46");
  EXPECT_EQ(rate_text(99.97), "100");
  EXPECT_EQ(rate_text(std::numeric_limits<double>::infinity()), "inf");
}

TEST(NumberText, CountdownsHaveWholeSeconds) {
  EXPECT_EQ(countdown_text(0.2), "0 s");
  EXPECT_EQ(countdown_text(12.4), "12 s");
  EXPECT_EQ(countdown_text(125), "2 min 05 s");
  EXPECT_EQ(countdown_text(7800), "2 h 10 min");
  EXPECT_EQ(countdown_text(-1), "0 s");
  EXPECT_EQ(short_countdown(12), "0:12");
  EXPECT_EQ(short_countdown(125), "2:05");
  EXPECT_EQ(short_countdown(7805), "2:10:05");
}

TEST(NumberText, CountsThings) {
  EXPECT_EQ(counted(1, "worker"), "1 worker");
  EXPECT_EQ(counted(0, "worker"), "0 workers");
  EXPECT_EQ(counted(1200, "step"), "1,200 steps");
}

TEST(NumberText, ControlCharactersBecomeSpaces) {
  EXPECT_EQ(printable("a\x1b[2J\r\nb\x7f\xc3\xa4"), "a [2J  b \xc3\xa4");
}

}  // namespace
}  // namespace trireme::monitor::text_test
