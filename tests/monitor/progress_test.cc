#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <algorithm>

#include "helpers.h"

namespace trireme::monitor::progress_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

class ProgressTest : public testing::Test {
 protected:
  std::unique_ptr<Sink> make(bool terminal) {
    return make_progress(out_.file(), terminal, 2.0, [this] { return now_; });
  }
  void pass(int milliseconds) { now_ += std::chrono::milliseconds(milliseconds); }
  // Reads the output since the last call.
  std::string news() {
    const std::string text = out_.text().substr(read_);
    read_ += text.size();
    return text;
  }
  static StepRecord step(int64_t number) {
    return {.step = number,
            .epoch = (number - 1) / 10,
            .loss = 0.5,
            .learning_rate = 0.1,
            .samples = 64,
            .seconds = 0.01};
  }

  TextStream out_;
  size_t read_ = 0;
  std::chrono::steady_clock::time_point now_{};
  const RunStart start_{.name = "cnn on digits",
                        .strategy = "multi_worker",
                        .workers = 2,
                        .world_size = 2,
                        .total_steps = 30,
                        .steps_per_epoch = 10,
                        .parameters = 9930};
};

TEST_F(ProgressTest, TerminalRedrawsOneLineInPlace) {
  const auto sink = make(true);
  sink->on_start(start_);
  EXPECT_THAT(news(), StartsWith("\r\x1b[KTraining cnn on digits: multi_worker, 2 workers, 9,930 "
                                 "parameters, 30 steps\n\repoch 1/3 [>"));
  pass(100);
  sink->on_step(step(1));
  const std::string drawn = news();
  EXPECT_THAT(drawn, StartsWith("\repoch 1/3 ["));
  EXPECT_THAT(drawn, HasSubstr("step  1/30  loss 0.5000   6,400 samples/s"));
  EXPECT_TRUE(drawn.ends_with("\x1b[K"));
  EXPECT_THAT(drawn, Not(HasSubstr("\n")));
}

TEST_F(ProgressTest, TerminalRedrawsAtMostTenTimesASecond) {
  const auto sink = make(true);
  RunStart start = start_;
  start.total_steps = 10000;
  sink->on_start(start);
  news();
  for (int i = 1; i <= 1000; ++i) {
    pass(1);
    sink->on_step(step(i));
  }
  const std::string drawn = news();
  EXPECT_EQ(std::count(drawn.begin(), drawn.end(), '\r'), 10);
}

TEST_F(ProgressTest, TerminalDrawsTheLastStepAtOnce) {
  const auto sink = make(true);
  sink->on_start(start_);
  sink->on_step(step(1));
  news();
  sink->on_step(step(30));
  EXPECT_THAT(news(), HasSubstr("step 30/30"));
}

TEST_F(ProgressTest, LastingLinesStayAboveTheBar) {
  const auto sink = make(true);
  sink->on_start(start_);
  pass(100);
  sink->on_step(step(30));
  news();
  sink->on_eval({.step = 30, .epoch = 2, .loss = 0.2, .accuracy = 0.978});
  EXPECT_THAT(
      news(),
      StartsWith(
          "\r\x1b[Kepoch 3: loss 0.5000, held-out loss 0.2000, accuracy 97.8 %\n\repoch 3/3 ["));
  sink->on_message("checkpoint saved: runs/a");
  EXPECT_THAT(news(), StartsWith("\r\x1b[Kcheckpoint saved: runs/a\n\repoch 3/3 ["));
}

TEST_F(ProgressTest, ForeignTextCannotMoveTheCursor) {
  const auto sink = make(false);
  sink->on_message("a\x1b[2Jb\rc");
  EXPECT_EQ(news(), "a [2Jb c\n");
}

TEST_F(ProgressTest, TheEndReplacesTheBarByTheSummary) {
  auto sink = make(true);
  sink->on_start(start_);
  news();
  sink->on_end({.report = {{"steps", 30}}});
  sink.reset();
  EXPECT_EQ(news(), "\r\x1b[K\nFinished 30 steps\n");
}

TEST_F(ProgressTest, AnInterruptedRunLeavesTheCursorOnANewLine) {
  auto sink = make(true);
  sink->on_start(start_);
  news();
  sink.reset();
  EXPECT_EQ(news(), "\n");
}

TEST_F(ProgressTest, PlainLinesComeByIntervalAtEpochEndsAndAtTheLastStep) {
  const auto sink = make(false);
  RunStart start = start_;
  start.total_steps = 25;
  sink->on_start(start);
  std::vector<std::string> steps;
  for (int i = 1; i <= 25; ++i) {
    pass(500);
    news();
    sink->on_step(step(i));
    if (const std::string line = news(); !line.empty())
      steps.push_back(line.substr(line.find("step"), 10));
  }
  EXPECT_THAT(steps, ElementsAre("step  5/25", "step  9/25", "step 10/25", "step 14/25",
                                 "step 18/25", "step 20/25", "step 24/25", "step 25/25"));
}

TEST_F(ProgressTest, PlainOutputHasNoControlCharacters) {
  const auto sink = make(false);
  sink->on_start(start_);
  for (int i = 1; i <= 30; ++i) {
    pass(1000);
    sink->on_step(step(i));
  }
  sink->on_eval({.step = 30, .epoch = 2, .loss = 0.2, .accuracy = 0.978});
  sink->on_message("checkpoint saved");
  sink->on_end({.report = {{"steps", 30}, {"strategy", "a\tb"}}});
  const std::string text = news();
  EXPECT_TRUE(std::none_of(text.begin(), text.end(), [](char c) {
    return c >= 0 && c < 0x20 && c != '\n';
  })) << text;
  EXPECT_TRUE(text.ends_with("\n"));
}

TEST_F(ProgressTest, WorksWithoutAKnownEnd) {
  for (const bool terminal : {true, false}) {
    const auto sink = make(terminal);
    sink->on_start({.name = "own loop"});
    news();
    sink->on_step(step(1));
    pass(3000);
    sink->on_step(step(2));
    const std::string text = news();
    EXPECT_THAT(text, HasSubstr("epoch 1  step 2  loss 0.5000"));
    EXPECT_THAT(text, Not(HasSubstr("left")));
  }
}

TEST_F(ProgressTest, AnEvaluationBeforeAnyStepHasNoTrainingLoss) {
  const auto sink = make(false);
  sink->on_eval({.step = 0, .epoch = 0, .loss = 2.3, .accuracy = 0.1});
  EXPECT_EQ(news(), "epoch 1: held-out loss 2.300, accuracy 10.0 %\n");
}

TEST_F(ProgressTest, AResumedRunSaysWhereItStarts) {
  const auto sink = make(true);
  RunStart start = start_;
  start.first_step = 15;
  sink->on_start(start);
  const std::string text = news();
  EXPECT_THAT(text, HasSubstr("resumed after step 15"));
  EXPECT_THAT(text, HasSubstr("epoch 2/3"));
  EXPECT_THAT(text, HasSubstr("step 15/30"));
}

}  // namespace
}  // namespace trireme::monitor::progress_test
