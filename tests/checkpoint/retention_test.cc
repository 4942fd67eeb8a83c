#include <trireme/checkpoint/retention.h>

#include <gmock/gmock.h>
#include <limits>

#include "folder_testing.h"

namespace trireme::checkpoint::retention_test {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

TEST(Retention, KeepsTheNewest) {
  const Measured all = {{10, {}}, {20, {}}, {30, {}}, {40, {}}};
  EXPECT_THAT(outdated(all, 40, {.keep = 2}), ElementsAre(20, 10));
  EXPECT_THAT(outdated(all, 40, {.keep = 9}), IsEmpty());
}

TEST(Retention, KeepsEveryNthForEver) {
  const Measured all = {{100, {}}, {150, {}}, {200, {}}, {250, {}}, {300, {}}};
  EXPECT_THAT(outdated(all, 300, {.keep = 1, .keep_every = 100}), ElementsAre(250, 150));
}

TEST(Retention, KeepsTheBest) {
  const Measured all = {{10, 0.5}, {20, 0.2}, {30, 0.3}, {40, 0.9}, {50, {}}};
  EXPECT_THAT(outdated(all, 50, {.keep = 1, .keep_best = 2}), ElementsAre(40, 10));
}

TEST(Retention, KeepsTheBestOfAMeasureWhoseHigherValuesAreBetter) {
  const Measured all = {{10, 0.5}, {20, 0.2}, {30, 0.9}, {40, 0.9}, {50, {}}};
  EXPECT_THAT(outdated(all, 50,
                       {.keep = 1,
                        .keep_best = 2,
                        .best_by = {.measure = "accuracy", .higher_is_better = true}}),
              ElementsAre(20, 10));
}

TEST(Retention, OfEqualValuesTheOlderIsBetter) {
  EXPECT_THAT(outdated({{10, 0.5}, {20, 0.5}, {30, 0.5}}, 30, {.keep = 1, .keep_best = 1}),
              ElementsAre(20));
}

TEST(Retention, NaNAndInfinityAreNotTheBest) {
  const double nan = std::numeric_limits<double>::quiet_NaN(),
               infinity = std::numeric_limits<double>::infinity();
  EXPECT_THAT(
      outdated({{10, nan}, {20, -infinity}, {30, 7.0}, {40, {}}}, 40, {.keep = 1, .keep_best = 1}),
      ElementsAre(20, 10));
}

TEST(Retention, NeverCountsOrRemovesLaterSteps) {
  EXPECT_THAT(outdated({{10, {}}, {20, {}}, {30, {}}}, 20, {.keep = 1}), ElementsAre(10));
}

class KeptCheckpoints : public CheckpointFolder {
 protected:
  static void save_with_loss(Folder& folder, int64_t step, double loss) {
    Manifest manifest;
    manifest.step = step;
    manifest.extra["evaluation"] = {{"loss", loss}};
    folder.save(manifest, std::vector<TensorView>{}, {});
  }
};

TEST_F(KeptCheckpoints, AreTheNewestTheBestAndEveryNth) {
  Folder folder(runs_, {.keep = 1, .keep_every = 40, .keep_best = 1});
  const std::pair<int64_t, double> saves[] = {{10, 0.9}, {20, 0.1}, {30, 0.4},
                                              {40, 0.8}, {50, 0.3}, {60, 0.6}};
  for (const auto& [step, loss] : saves) save_with_loss(folder, step, loss);
  EXPECT_THAT(names_in(runs_),
              ElementsAre(".lock", "step-000000020", "step-000000040", "step-000000060"));
}

TEST_F(KeptCheckpoints, TheBestOfAnEarlierRunIsKnownFromItsManifest) {
  {
    Folder folder(runs_, {.keep = 9});
    save_with_loss(folder, 10, 0.5);
    save_with_loss(folder, 20, 0.1);
    save_with_loss(folder, 30, 0.7);
  }
  Folder folder(runs_, {.keep = 1, .keep_best = 1});
  save_with_loss(folder, 40, 0.6);
  EXPECT_THAT(names_in(runs_), ElementsAre(".lock", "step-000000020", "step-000000040"));
}

TEST_F(KeptCheckpoints, PruneGoesByTheMeasureOfTheRun) {
  {
    Folder folder(runs_, {.keep = 9});
    const std::pair<int64_t, double> saves[] = {{10, 0.4}, {20, 0.9}, {30, 0.6}};
    for (const auto& [step, f1] : saves) {
      Manifest manifest;
      manifest.step = step;
      manifest.extra["evaluation"] = {{"loss", f1}, {"metrics", {{"f1", f1}}}};
      manifest.extra["best_by"] = {{"measure", "f1"}, {"higher_is_better", true}};
      folder.save(manifest, std::vector<TensorView>{}, {});
    }
  }
  Folder folder(runs_, {.keep = 1, .keep_best = 1});
  EXPECT_THAT(folder.prune(), ElementsAre(10));
}

}  // namespace
}  // namespace trireme::checkpoint::retention_test
