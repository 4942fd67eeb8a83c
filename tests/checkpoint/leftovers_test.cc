#include <trireme/checkpoint/leftovers.h>

#include <gmock/gmock.h>

#include "folder_testing.h"

namespace trireme::checkpoint::leftovers_test {
namespace {

using testing::ElementsAre;

class Leftovers : public CheckpointFolder {
 protected:
  void leave(const std::string& name) {
    std::filesystem::create_directories(runs_ / name);
    overwrite(runs_ / name / "model.safetensors", "half");
  }
};

TEST_F(Leftovers, OfAnInterruptedWriteAreRemoved) {
  leave(writing_name("step-000000005"));
  const Folder folder(runs_);
  EXPECT_THAT(names_in(runs_), ElementsAre(".lock"));
}

TEST_F(Leftovers, OfPartsAreRemoved) {
  leave(writing_name("step-000000005", "8f2e-3"));
  const Folder folder(runs_);
  EXPECT_THAT(names_in(runs_), ElementsAre(".lock"));
}

TEST_F(Leftovers, WithNamesThatAreNotOursStay) {
  const std::vector<std::string> names = {".writing-", ".writing-5", ".writing-step",
                                          ".writing-step-5", ".replaced-notes"};
  for (const std::string& name : names) leave(name);
  const Folder folder(runs_);
  for (const std::string& name : names) EXPECT_THAT(names_in(runs_), testing::Contains(name));
}

TEST_F(Leftovers, AreNoCheckpoints) {
  leave(writing_name("step-000000005"));
  EXPECT_FALSE(has_checkpoints(runs_));
}

TEST_F(Leftovers, OneMovedAsideComesBackIfItsSuccessorDidNotArrive) {
  {
    Folder folder(runs_);
    std::filesystem::rename(save(folder, 5), runs_ / replaced_name("step-000000005"));
  }
  EXPECT_TRUE(has_checkpoints(runs_));
  leave(writing_name("step-000000005"));
  const Folder folder(runs_);
  EXPECT_THAT(names_in(runs_), ElementsAre(".lock", "step-000000005"));
  EXPECT_EQ(newest_step(folder), 5);
}

TEST_F(Leftovers, OneMovedAsideGoesIfItsSuccessorArrived) {
  {
    Folder folder(runs_);
    std::filesystem::rename(save(folder, 5, 1), runs_ / replaced_name("step-000000005"));
    save(folder, 5, 2);
  }
  const Folder folder(runs_);
  EXPECT_THAT(names_in(runs_), ElementsAre(".lock", "step-000000005"));
  EXPECT_EQ(first_weight(*folder.newest()), 2);
}

}  // namespace
}  // namespace trireme::checkpoint::leftovers_test
