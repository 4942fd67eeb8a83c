#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <trireme/base/error.h>
#include <chrono>
#include <fstream>
#include <iterator>
#include <limits>

#include "helpers.h"

namespace trireme::monitor::json_lines_test {
namespace {

std::vector<Json> read_json_lines(const std::filesystem::path& file) {
  std::ifstream in(file);
  std::vector<Json> lines;
  for (std::string line; std::getline(in, line);) lines.push_back(Json::parse(line));
  return lines;
}
double unix_now() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch())
      .count();
}

TEST(JsonLines, EachEventIsOnDiskAsOneObjectWhenTheCallReturns) {
  const TemporaryFolder folder;
  const auto file = folder.path() / "logs" / "run.jsonl";
  const auto sink = make_json_lines(file);
  const double before = unix_now();
  sink->on_start({.name = "cnn", .total_steps = 2});
  sink->on_step(
      {.step = 1, .epoch = 0, .loss = 0.5, .learning_rate = 0.1, .samples = 64, .seconds = 0.25});
  sink->on_eval({.step = 1, .epoch = 0, .loss = 0.25, .accuracy = 0.75});
  sink->on_message("saved");
  sink->on_end({.report = {{"steps", 1}, {"loss_history", {0.5}}}});

  const auto lines = read_json_lines(file);
  ASSERT_EQ(lines.size(), 5u);
  EXPECT_EQ(lines[0].at("event"), "start");
  EXPECT_EQ(lines[0].at("total_steps"), 2);
  EXPECT_NEAR(lines[1].at("time").get<double>(), before, 60);
  Json step = lines[1];
  step.erase("time");
  EXPECT_EQ(step,
            Json::parse(R"({"event":"step","step":1,"epoch":0,"loss":0.5,"learning_rate":0.1,)"
                        R"("samples":64,"seconds":0.25})"));
  EXPECT_EQ(lines[2].at("accuracy"), 0.75);
  EXPECT_EQ(lines[3].at("text"), "saved");
  EXPECT_EQ(lines[4].at("report"), (Json{{"steps", 1}}));
}

TEST(JsonLines, TheSamplesOfAStepAreReadBack) {
  const TemporaryFolder folder;
  const auto file = folder.path() / "run.jsonl";
  const ContinueRecord from{
      1, 40, {2, 640}, {1437, 64, ~uint64_t{0}, true, false}, {{"runs", Json::array()}}};
  const CommitRecord commit{1, 41, {2, 640}, 64, {22, 21, 21}},
      skipped{1, 41, {2, 704}, 64, {22, 21, 21}, false};
  const auto sink = make_json_lines(file);
  sink->on_continue(from);
  sink->on_commit(commit);
  sink->on_commit(skipped);

  const auto lines = read_json_lines(file);
  ASSERT_EQ(lines.size(), 3u);
  Json text = lines[1];
  text.erase("time");
  EXPECT_EQ(text,
            Json::parse(R"({"event":"commit","generation":1,"step":41,"epoch":2,"first":640,)"
                        R"("samples":64,"shares":[22,21,21]})"));
  const auto read = std::get<ContinueRecord>(*event_of(lines[0]));
  EXPECT_EQ(read.generation, 1);
  EXPECT_EQ(read.step, 40);
  EXPECT_EQ(read.position, from.position);
  EXPECT_EQ(read.data.seed, from.data.seed);
  EXPECT_EQ(read.data.samples, 1437);
  EXPECT_EQ(read.ledger, from.ledger);
  EXPECT_EQ(std::get<CommitRecord>(*event_of(lines[1])), commit);
  EXPECT_EQ(std::get<CommitRecord>(*event_of(lines[2])), skipped);
}

TEST(JsonLines, RecordsOfSamplesThatLackAFieldAreRefused) {
  const CommitRecord commit{1, 41, {2, 640}, 64, {64}};
  for (const char* field : {"generation", "step", "epoch", "first", "samples", "shares"}) {
    Json json = to_json(commit);
    json.erase(field);
    EXPECT_FALSE(event_of(json)) << field;
    json[field] = "x";
    EXPECT_FALSE(event_of(json)) << field;
  }
  Json from = to_json(ContinueRecord{});
  EXPECT_TRUE(event_of(from));
  from["data"].erase("seed");
  EXPECT_FALSE(event_of(from));
}

TEST(JsonLines, NumbersThatJsonLacksAreStrings) {
  const TemporaryFolder folder;
  const auto file = folder.path() / "run.jsonl";
  const auto sink = make_json_lines(file);
  const double infinity = std::numeric_limits<double>::infinity(),
               nan = std::numeric_limits<double>::quiet_NaN();
  sink->on_step({.loss = nan, .learning_rate = -infinity, .gradient_norm = infinity});
  sink->on_end({.report = {{"eval", {{"loss", nan}}}, {"list", {1.0, infinity}}}});
  const auto lines = read_json_lines(file);
  EXPECT_EQ(lines[0].at("loss"), "NaN");
  EXPECT_EQ(lines[0].at("learning_rate"), "-Infinity");
  EXPECT_EQ(lines[0].at("gradient_norm"), "Infinity");
  EXPECT_EQ(lines[1].at("report").at("eval").at("loss"), "NaN");
  EXPECT_EQ(lines[1].at("report").at("list"), (Json{1.0, "Infinity"}));
}

TEST(JsonLines, AppendsToAnExistingFile) {
  const TemporaryFolder folder;
  const auto file = folder.path() / "run.jsonl";
  make_json_lines(file)->on_message("first");
  make_json_lines(file)->on_message("second");
  const auto lines = read_json_lines(file);
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_EQ(lines[1].at("text"), "second");
}

template <typename Action>
void expect_io_error_naming(const std::string& path, Action action) {
  try {
    action();
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::io);
    EXPECT_THAT(error.what(), testing::HasSubstr(path));
  }
}

TEST(JsonLines, AFileThatCannotBeOpenedIsAnIoErrorNamingIt) {
  const TemporaryFolder folder;
  expect_io_error_naming(folder.path().string(), [&] { make_json_lines(folder.path()); });
  std::ofstream(folder.path() / "plain") << "x";
  expect_io_error_naming("plain", [&] { make_json_lines(folder.path() / "plain" / "run.jsonl"); });
}

TEST(JsonLines, AFullDiskIsAnIoErrorNamingTheFile) {
  expect_io_error_naming("/dev/full", [] { make_json_lines("/dev/full")->on_message("hello"); });
}

}  // namespace
}  // namespace trireme::monitor::json_lines_test
