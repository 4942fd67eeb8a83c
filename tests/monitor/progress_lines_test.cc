#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <cmath>
#include <limits>

#include "helpers.h"

namespace trireme::monitor::progress_lines_test {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

std::string marked(const std::string& text) { return kProgressMark + text; }

TEST(ProgressLines, EveryEventArrivesAsItWasSent) {
  TextStream out;
  const auto sender = make_progress_lines(out.file());
  sender->on_start({.name = "cnn",
                    .strategy = "mirrored",
                    .workers = 1,
                    .world_size = 2,
                    .total_steps = 10,
                    .first_step = 3,
                    .steps_per_epoch = 5,
                    .parameters = 7});
  sender->on_step({.step = 4,
                   .epoch = 1,
                   .loss = 0.1,
                   .learning_rate = 1e-3,
                   .gradient_norm = 2.5,
                   .samples = 64,
                   .seconds = 0.25});
  sender->on_step({.step = 5, .epoch = 1, .loss = 0.1, .samples = 64, .seconds = 0.25});
  sender->on_eval({.step = 5, .epoch = 1, .loss = 0.3, .accuracy = 0.9});
  sender->on_message("two\nlines \xff");
  sender->on_end({.stopped = true, .report = {{"steps", 5}, {"loss_history", {1, 2, 3}}}});

  RecordingSink sink;
  const auto lines = lines_of(out.text());
  ASSERT_EQ(lines.size(), 6u);
  for (const auto& line : lines) EXPECT_TRUE(replay_progress(line, sink)) << line;

  const auto& start = std::get<RunStart>(sink.events.at(0));
  EXPECT_EQ(start.name, "cnn");
  EXPECT_EQ(start.strategy, "mirrored");
  EXPECT_EQ(start.workers, 1);
  EXPECT_EQ(start.world_size, 2);
  EXPECT_EQ(start.total_steps, 10);
  EXPECT_EQ(start.first_step, 3);
  EXPECT_EQ(start.steps_per_epoch, 5);
  EXPECT_EQ(start.parameters, 7);
  const auto& step = std::get<StepRecord>(sink.events.at(1));
  EXPECT_EQ(step.step, 4);
  EXPECT_EQ(step.epoch, 1);
  EXPECT_EQ(step.loss, 0.1);
  EXPECT_EQ(step.learning_rate, 1e-3);
  EXPECT_EQ(step.gradient_norm, 2.5);
  EXPECT_EQ(step.samples, 64);
  EXPECT_EQ(step.seconds, 0.25);
  EXPECT_LT(std::get<StepRecord>(sink.events.at(2)).gradient_norm, 0);
  EXPECT_EQ(std::get<EvalRecord>(sink.events.at(3)).accuracy, 0.9);
  EXPECT_EQ(std::get<Message>(sink.events.at(4)).text, "two\nlines \xef\xbf\xbd");
  const auto& end = std::get<RunEnd>(sink.events.at(5));
  EXPECT_TRUE(end.stopped);
  EXPECT_EQ(end.report, (Json{{"steps", 5}}));
}

TEST(ProgressLines, LossesThatAreNotNumbersArrive) {
  TextStream out;
  const auto sender = make_progress_lines(out.file());
  for (const double loss : {kNaN, kInfinity, -kInfinity})
    sender->on_step({.step = 1, .loss = loss, .gradient_norm = kNaN});
  RecordingSink sink;
  for (const auto& line : lines_of(out.text())) ASSERT_TRUE(replay_progress(line, sink));
  EXPECT_TRUE(std::isnan(std::get<StepRecord>(sink.events.at(0)).loss));
  EXPECT_TRUE(std::isnan(std::get<StepRecord>(sink.events.at(0)).gradient_norm));
  EXPECT_EQ(std::get<StepRecord>(sink.events.at(1)).loss, kInfinity);
  EXPECT_EQ(std::get<StepRecord>(sink.events.at(2)).loss, -kInfinity);
}

TEST(ProgressLines, OtherLinesAreLeftAlone) {
  RecordingSink sink;
  for (const std::string line :
       {"", "hello", "trireme {\"event\":\"message\",\"text\":\"a\"}", "\x1e"})
    EXPECT_FALSE(replay_progress(line, sink));
  EXPECT_TRUE(sink.events.empty());
}

TEST(ProgressLines, DamagedLinesAreRefused) {
  RecordingSink sink;
  for (const std::string text :
       {"", "{", "null", "7", "[]", "{}", "\xff\xfe", R"({"event":7})", R"({"event":"dance"})",
        R"({"event":"step"})", R"({"event":"message"})", R"({"event":"message","text":1})",
        R"({"event":"end","stopped":1,"report":{}})",
        R"({"event":"eval","step":1.5,"epoch":0,"loss":1,"accuracy":1})",
        R"({"event":"eval","step":1e300,"epoch":0,"loss":1,"accuracy":1})",
        R"({"event":"eval","step":18446744073709551615,"epoch":0,"loss":1,"accuracy":1})",
        R"({"event":"eval","step":1,"epoch":0,"loss":"much","accuracy":1})",
        R"({"event":"eval","step":1,"epoch":0,"loss":1,"accuracy":1} x)"}) {
    EXPECT_FALSE(replay_progress(marked(text), sink)) << text;
  }
  EXPECT_TRUE(sink.events.empty());
}

TEST(ProgressLines, EveryCutOffLineIsRefused) {
  TextStream out;
  make_progress_lines(out.file())->on_step({.step = 4, .epoch = 1, .loss = 0.1, .samples = 64});
  const std::string line = lines_of(out.text()).at(0);
  RecordingSink sink;
  for (size_t length = 0; length < line.size(); ++length)
    EXPECT_FALSE(replay_progress(line.substr(0, length), sink)) << length;
  EXPECT_TRUE(replay_progress(line + "\r\n", sink));
}

TEST(FanOut, TellsAllSinksInOrder) {
  TextStream first, second;
  std::vector<std::unique_ptr<Sink>> sinks;
  sinks.push_back(make_progress_lines(first.file()));
  sinks.push_back(make_progress_lines(second.file()));
  const auto sink = make_fan_out(std::move(sinks));
  sink->on_start({});
  sink->on_step({});
  sink->on_eval({});
  sink->on_message("hello");
  sink->on_end({});
  EXPECT_EQ(lines_of(first.text()).size(), 5u);
  EXPECT_EQ(first.text(), second.text());
}

}  // namespace
}  // namespace trireme::monitor::progress_lines_test
