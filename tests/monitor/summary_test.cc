#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <trireme/monitor/summary.h>

namespace trireme::monitor::summary_test {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

Json full_report() {
  return {{"strategy", "multi_worker"},
          {"workers", 2},
          {"steps", 460},
          {"epochs", 20},
          {"eval", {{"loss", 0.0812}, {"accuracy", 0.98055}}},
          {"train_loss", 0.0123},
          {"samples_per_second", 12345.6},
          {"wall_seconds", 12.34},
          {"cpu_seconds", 125.0},
          {"peak_pss_bytes", 512000000},
          {"cost", 0.00123},
          {"checkpoint", "runs/a/checkpoint/step-460"},
          {"files",
           {{"report", "runs/a/report.json"},
            {"events", "runs/a/events"},
            {"log", "runs/a/log.jsonl"}}}};
}

TEST(Summary, TellsResultSpeedCostAndPlaces) {
  EXPECT_THAT(summary_lines({.report = full_report()}),
              ElementsAre("Finished 460 steps (20 epochs), multi_worker, 2 workers",        //
                          "  accuracy     98.06 % of the held-out samples (loss 0.08120)",  //
                          "  train loss   0.01230",                                         //
                          "  speed        12,346 samples/s",                                //
                          "  time         12.3 s, CPU 2 min 05 s",                          //
                          "  memory       512.0 MB at most",                                //
                          "  cost         0.0012",                                          //
                          "  checkpoint   runs/a/checkpoint/step-460",                      //
                          "  report       runs/a/report.json",                              //
                          "  log          runs/a/log.jsonl",                                //
                          "  TensorBoard  tensorboard --logdir runs/a/events"));
}

TEST(Summary, LeavesOutMissingValues) {
  EXPECT_THAT(summary_lines({.report = Json::object()}), ElementsAre("Finished"));
  EXPECT_THAT(summary_lines({.report = nullptr}), ElementsAre("Finished"));
  EXPECT_THAT(summary_lines({.report = {{"eval", nullptr},
                                        {"cost", "much"},
                                        {"files", 3},
                                        {"checkpoint", ""},
                                        {"steps", 7}}}),
              ElementsAre("Finished 7 steps"));
}

TEST(Summary, AStoppedRunSaysHowToContinue) {
  EXPECT_EQ(summary_lines({.stopped = true, .report = full_report()}).front(),
            "Stopped at step 460; continue with the same command");
  EXPECT_EQ(summary_lines({.stopped = true, .report = {}}).front(),
            "Stopped; continue with the same command");
}

TEST(Summary, ACostOfNothingNamesTheKeysThatSetPrices) {
  EXPECT_THAT(summary_lines({.report = {{"cost", 0}}}), Contains(HasSubstr("cost.per_cpu_hour")));
}

TEST(Summary, LossesThatAreNotNumbersAreNamed) {
  EXPECT_THAT(summary_lines({.report = {{"train_loss", "NaN"}}}), Contains("  train loss   nan"));
}

TEST(Summary, TheTensorBoardCommandQuotesAFolderForAShell) {
  const auto command = [](const char* events) {
    return summary_lines({.report = {{"files", {{"events", events}}}}}).back();
  };
  EXPECT_THAT(command("runs/my run/events"), HasSubstr("--logdir 'runs/my run/events'"));
  EXPECT_THAT(command("it's"), HasSubstr("--logdir 'it'\\''s'"));
  EXPECT_THAT(command("runs/a/events.out.tfevents.1.host.2"),
              testing::EndsWith("--logdir runs/a"));
  EXPECT_THAT(command("events.out.tfevents.1.host.2"), testing::EndsWith("--logdir ."));
}

}  // namespace
}  // namespace trireme::monitor::summary_test
