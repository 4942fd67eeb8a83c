#include <trireme/train/input_report.h>

#include <gmock/gmock.h>

#include <trireme/comm/lone_rank.h>
#include <string>

#include "../comm/ranks.h"

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

TEST(InputReport, NamesTheSlowestStageOfADataService) {
  InputOfRank input = slow_input();
  input.served = data::ServedCounts{.served = 100, .threads = 2};
  input.stages = {{"read", 0, 0},
                  {"decode", 0.1, 10},
                  {.name = "read", .seconds = 1, .samples = 100, .in_service = true},
                  {.name = "decode", .seconds = 18, .samples = 100, .in_service = true},
                  {"service", 19, 100}};
  EXPECT_EQ(line(input),
            "100 samples from the data service; waited 30.0 % of step time; slowest stage decode "
            "of the data service, 1.9 of its 2 threads busy: more data.service_threads, or "
            "another server");
  const Json told = report(input);
  EXPECT_EQ(told.at("slowest_in_service"), true);
  EXPECT_EQ(told.at("service_threads"), 2);
  EXPECT_EQ(told.at("stages")[3].at("in"), "service");
  EXPECT_NEAR(told.at("stages")[3].at("threads").get<double>(), 1.8, 1e-9);
  EXPECT_FALSE(told.at("stages")[1].contains("in"));
  // A server that has told nothing leaves the wait for it.
  input.stages[2].seconds = input.stages[3].seconds = 0;
  EXPECT_EQ(report(input).at("slowest_stage"), "service");
  EXPECT_EQ(report(input).at("slowest_in_service"), false);
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

TEST(InputReport, HasThreadsAndBytesOfEachStage) {
  InputOfRank input = slow_input();
  input.stages[0].bytes = 3000, input.stages[1].bytes = 76'800;
  const Json stages = report(input).at("stages");
  EXPECT_EQ(stages.at(0).at("bytes"), 3000);
  EXPECT_EQ(stages.at(1).at("bytes"), 76'800);
  EXPECT_DOUBLE_EQ(stages.at(0).at("threads").get<double>(), 0.1);
  EXPECT_DOUBLE_EQ(stages.at(1).at("threads").get<double>(), 1.8);
  input.tuning = {.setting = {0, 0}};  // The rank loads by itself.
  EXPECT_DOUBLE_EQ(report(input).at("stages").at(0).at("threads").get<double>(), 0.1);
}

// Ranks 0 and 1 are replicas of one process, and rank 2 is another process.
TEST(InputReport, AddsUpProcesses) {
  tests::on_ranks(tests::thread_groups(3), [](Group& group) {
    InputOfRank input = slow_input();
    input.stages[0].bytes = 1000;
    input.cache = data::CacheUse{"memory", 100, 90, 7, false, 40, 9};
    input.counts_process = group.rank() != 1;
    const Json all = report_of_input(input, group);
    const Json& read = all.at("stages").at(0);
    EXPECT_EQ(read.at("bytes"), 2000);
    EXPECT_EQ(read.at("samples"), 200);
    EXPECT_NEAR(read.at("threads").get<double>(), 0.2, 1e-12);  // Of six threads in 10 s.
    EXPECT_EQ(all.at("cache").at("hits"), 80);
    EXPECT_EQ(all.at("cache").at("misses"), 18);
    EXPECT_EQ(all.at("cache").at("samples"), 7);  // The cache of the host.
  });
}

// Processes read the same damaged records in different epochs, and parts may have equal numbers.
TEST(InputReport, CountsARecordThatIsSkippedOnce) {
  tests::on_ranks(tests::thread_groups(3), [](Group& group) {
    InputOfRank input = slow_input();
    input.skipped = {0, 7};
    if (group.rank() == 1) input.skipped = {7, 9, 12};
    if (group.rank() == 2) input.skipped_in_test = {7, 40};
    const Json all = report_of_input(input, group);
    EXPECT_EQ(all.at("skipped"), 6);
    EXPECT_EQ(all.at("skipped_in_test"), 2);
  });
}

}  // namespace
}  // namespace trireme::input_report_test
