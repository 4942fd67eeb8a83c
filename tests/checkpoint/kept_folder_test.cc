// A checkpoint that stays when its folder lets it go.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <trireme/checkpoint/folder.h>
#include <trireme/checkpoint/kept_folder.h>
#include <trireme/checkpoint/step_name.h>

#include "folder_testing.h"
#include "tracing_file_system.h"

namespace trireme::checkpoint {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

class Kept : public CheckpointFolder {
 protected:
  std::filesystem::path keep(KeptFolder& kept, const std::filesystem::path& checkpoint) {
    return kept.keep(*kept.take(checkpoint));
  }
  const std::filesystem::path best_ = folder_ / "best";
};

TEST_F(Kept, ItSurvivesTheKeepingRuleOfItsFolder) {
  Folder folder(runs_, {.keep = 1});
  KeptFolder kept(best_);
  const auto place = keep(kept, save(folder, 10));
  save(folder, 20);
  EXPECT_THAT(steps_in(disk(), runs_), ElementsAre(20));
  EXPECT_EQ(place, best_ / name_of_step(10));
  EXPECT_EQ(first_weight(open_checkpoint(place)), 10);
}

TEST_F(Kept, OnlyTheLastOneStays) {
  Folder folder(runs_);
  KeptFolder kept(best_);
  keep(kept, save(folder, 10));
  keep(kept, save(folder, 20));
  EXPECT_THAT(names_in(best_), ElementsAre(name_of_step(20)));
  // Another checkpoint of the same step takes its place.
  EXPECT_EQ(first_weight(open_checkpoint(keep(kept, save(folder, 20, 77)))), 77);
  EXPECT_THAT(names_in(best_), ElementsAre(name_of_step(20)));
}

TEST_F(Kept, WhatIsTakenCanBeReadWhileItsFolderRemovesIt) {
  Folder folder(runs_, {.keep = 1});
  KeptFolder kept(best_);
  const auto taken = kept.take(save(folder, 10));
  save(folder, 20);
  EXPECT_EQ(first_weight(open_checkpoint(*taken)), 10);
  kept.drop(*taken);
  EXPECT_THAT(names_in(best_), IsEmpty());
}

TEST_F(Kept, OneThatIsGoneIsNotTaken) {
  Folder folder(runs_);
  KeptFolder kept(best_);
  EXPECT_EQ(kept.take(runs_ / name_of_step(10)), std::nullopt);
  std::filesystem::create_directories(runs_ / name_of_step(10));  // It has no manifest.
  EXPECT_EQ(kept.take(runs_ / name_of_step(10)), std::nullopt);
  EXPECT_THAT(names_in(best_), IsEmpty());
}

TEST_F(Kept, LeftoversGoWhenTheFolderIsOpened) {
  Folder folder(runs_);
  static_cast<void>(KeptFolder(best_).take(save(folder, 10)));
  EXPECT_THAT(names_in(best_), testing::SizeIs(1));
  KeptFolder again(best_);
  EXPECT_THAT(names_in(best_), IsEmpty());
}

// The disk of this test has no hard links, so that the files are copied.
TEST_F(Kept, AnInterruptionAtAnyPointLeavesAWholeCheckpoint) {
  Folder folder(runs_, {.keep = 3});
  const auto old = save(folder, 10), next = save(folder, 20);
  size_t failing = 0;
  for (bool interrupted = true; interrupted; ++failing) {
    std::filesystem::remove_all(best_);
    KeptFolder first(best_);
    keep(first, old);
    TracingFileSystem files;
    files.fail_at = failing;
    try {
      KeptFolder kept(best_, files);
      keep(kept, next);
      interrupted = files.asked > failing;  // A leftover that stays is no error.
    } catch (const Error&) {
    }
    KeptFolder after(best_);
    const auto steps = steps_in(disk(), best_);
    ASSERT_FALSE(steps.empty()) << "after operation " << failing;
    for (const int64_t step : steps)
      EXPECT_EQ(first_weight(open_checkpoint(best_ / name_of_step(step))), step);
    ASSERT_LT(failing, 1000U);
  }
  EXPECT_GT(failing, 10U);
  EXPECT_THAT(steps_in(disk(), best_), ElementsAre(20));
}

}  // namespace
}  // namespace trireme::checkpoint
