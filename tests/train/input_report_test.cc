#include <trireme/train/input_report.h>

#include <gmock/gmock.h>

#include <trireme/comm/lone_rank.h>
#include <string>

namespace trireme::input_report_test {
namespace {

using testing::HasSubstr;
using testing::Not;

InputOfRank slow_input() {
  InputOfRank input{.waited = 3, .step_seconds = 10};
  input.stages = {{"read", 1, 100}, {"decode", 18, 100}};
  input.tuning = {.setting = {2, 4}, .mean_threads = 2};
  return input;
}

Json report(const InputOfRank& own) { return report_of_input(own, *comm::make_lone_rank(1)); }
std::string line(const InputOfRank& own) { return report(own).at("line").get<std::string>(); }

TEST(InputReport, NamesTheSlowestStageAndANumberOfThreads) {
  EXPECT_EQ(line(slow_input()),
            "waited 30.0 % of step time; slowest stage decode, 1.9 of 2 threads busy: "
            "data.threads=3");
  InputOfRank none = slow_input();
  none.waited = 0.01;
  EXPECT_EQ(line(none), "");
  none = slow_input();
  none.tuning = {.setting = {0, 0}};
  EXPECT_THAT(line(none), HasSubstr("decode: data.threads=auto"));
}

TEST(InputReport, SaysWhyTuningWentNoFurther) {
  InputOfRank input = slow_input();
  input.tuning.tunes_threads = input.tuning.tunes_prefetch = true;
  input.tuning.reason = data::TunedBy::cores;
  EXPECT_THAT(line(input), HasSubstr("no core is left"));
  input.tuning.reason = data::TunedBy::memory;
  EXPECT_THAT(line(input), HasSubstr("data.memory_bytes"));
  input.tuning.reason = data::TunedBy::no_gain;
  EXPECT_THAT(line(input), HasSubstr("did not help"));
  EXPECT_THAT(line(input), Not(HasSubstr("data.threads")));
  const Json tuned = report(input).at("tuned");
  EXPECT_EQ(tuned.at("to_freeze"), "data.threads=2 data.prefetch=4");
  EXPECT_EQ(tuned.at("reason"), "no_gain");
  EXPECT_EQ(tuned.at("threads"), true);
}

TEST(InputReport, AdvisesACacheThatSavesWork) {
  InputOfRank input = slow_input();
  input.cache_bytes = 200'000'000;
  double seconds = 0.15;
  int64_t bytes = 150'000'000;
  input.advice = [&] { return data::CacheAdvice{"decode", bytes, seconds}; };
  EXPECT_THAT(line(input), HasSubstr("data.threads=3, or cache behind decode (150.0 MB)"));
  bytes = 300'000'000;
  EXPECT_THAT(line(input), HasSubstr("or cache(disk) behind decode (300.0 MB)"));
  seconds = 0.01;  // A part of 0.19 s for each sample.
  EXPECT_THAT(line(input), Not(HasSubstr("cache")));
}

TEST(InputReport, SaysIfACacheIsFull) {
  InputOfRank input = slow_input();
  input.cache = data::CacheUse{"memory", 100, 90, 7, true};
  EXPECT_THAT(line(input), HasSubstr("a larger data.cache_bytes, because 90 B hold 7 samples"));
  EXPECT_EQ(report(input).at("cache").at("samples"), 7);
}

}  // namespace
}  // namespace trireme::input_report_test
