#include <gtest/gtest.h>
#include <trireme/monitor/progress_line.h>

namespace trireme::monitor::progress_line_test {
namespace {

ProgressView small_run() {
  return {.epoch = 3,
          .epochs = 20,
          .step = 115,
          .total_steps = 460,
          .loss = 0.12344,
          .samples_per_second = 12345,
          .seconds_left = 12};
}
ProgressView large_run() {
  return {.epoch = 12,
          .epochs = 90,
          .step = 150000,
          .total_steps = 450000,
          .loss = 2.3,
          .samples_per_second = 123456,
          .seconds_left = 7325};
}
bool has(const std::string& line, const std::string& part) {
  return line.find(part) != std::string::npos;
}

TEST(BarLine, TellsEverythingInEightyColumns) {
  EXPECT_EQ(bar_line(small_run(), 80),
            "epoch  3/20 [==>       ] step 115/460  loss 0.1234  12,345 samples/s  12 s left");
}

TEST(BarLine, ShortensWordsBeforeItDropsTheBar) {
  EXPECT_EQ(bar_line(small_run(), 60),
            "epoch  3/20 [=>    ] 115/460 loss 0.1234 12,345/s 0:12 left");
}

TEST(BarLine, StaysOnItsLineAtEveryWidth) {
  for (const ProgressView& view : {small_run(), large_run(), ProgressView{}}) {
    for (int width = 1; width <= 200; ++width)
      EXPECT_LE(bar_line(view, width).size(), static_cast<size_t>(std::max(1, width - 1)));
  }
}

TEST(BarLine, DropsSpeedThenTimeLeftWhereItIsNarrow) {
  EXPECT_TRUE(has(bar_line(large_run(), 70), "/s"));
  const std::string narrow = bar_line(large_run(), 60);
  EXPECT_FALSE(has(narrow, "/s"));
  EXPECT_TRUE(has(narrow, "2:02:05 left"));
  EXPECT_EQ(bar_line(large_run(), 45), "epoch 12/90  150000/450000 loss 2.300 ");
}

TEST(BarLine, FillsWithTheStepsDone) {
  ProgressView view = small_run();
  view.step = 0;
  EXPECT_TRUE(has(bar_line(view, 200), "[>                                       ]"));
  view.step = 230;
  EXPECT_TRUE(has(bar_line(view, 200), "[====================>                   ]"));
  view.step = 460;
  EXPECT_TRUE(has(bar_line(view, 200), "[========================================]"));
  view.step = 500;
  EXPECT_TRUE(has(bar_line(view, 200), "[========================================]"));
}

TEST(BarLine, KeepsItsLengthWhileNumbersChange) {
  ProgressView view = small_run();
  const size_t bar_end = bar_line(view, 100).find(']');
  view.loss = 2.3;
  view.samples_per_second = 998;
  view.seconds_left = 9;
  view.step = 7;
  EXPECT_EQ(bar_line(view, 100).find(']'), bar_end);
}

TEST(BarLine, HasNoBarWithoutAKnownEnd) {
  const ProgressView view{.epoch = 2, .step = 115, .loss = 0.5, .samples_per_second = 1000};
  EXPECT_EQ(bar_line(view, 80), "epoch 2  step 115  loss 0.5000   1,000 samples/s");
}

TEST(BarLine, TellsTheTimeWithoutDataWhereItIsWide) {
  ProgressView view = small_run();
  view.waited_share = 0.316;
  EXPECT_TRUE(has(bar_line(view, 120), "12,345 samples/s  32 % without data  12 s left"));
  EXPECT_FALSE(has(bar_line(view, 80), "without data"));
  EXPECT_TRUE(has(bar_line(view, 80), "115/460 loss 0.1234 12,345/s 0:12 left"));
  for (int width = 1; width <= 200; ++width)
    EXPECT_LE(bar_line(view, width).size(), static_cast<size_t>(std::max(1, width - 1)));
}

TEST(PlainLine, TellsTheTimeWithoutDataFromATenthOn) {
  ProgressView view = small_run();
  view.waited_share = 0.1;
  EXPECT_EQ(plain_line(view),
            "epoch  3/20  step 115/460  loss 0.1234  12,345 samples/s  10 % without data  12 s "
            "left");
  view.waited_share = 0.099;
  EXPECT_EQ(plain_line(view), plain_line(small_run()));
}

TEST(PlainLine, TellsEverythingWithoutABar) {
  EXPECT_EQ(plain_line(small_run()),
            "epoch  3/20  step 115/460  loss 0.1234  12,345 samples/s  12 s left");
}

}  // namespace
}  // namespace trireme::monitor::progress_line_test
