#include <trireme/checkpoint/leftovers.h>

#include <gmock/gmock.h>

#include "folder_testing.h"

namespace trireme::checkpoint {
namespace {

using testing::ElementsAre;

// What a process that is gone would have called it: pids end below 2^22 on Linux.
std::string of_the_dead(const std::string& kind, const std::string& name) { return "." + kind + "-999999999-1-" + name; }

class Leftovers : public CheckpointFolder {
 protected:
  void leave(const std::string& name) {
    std::filesystem::create_directories(runs_ / name);
    overwrite(runs_ / name / "model.safetensors", "half");
  }
};

TEST_F(Leftovers, OfADeadWriterAreRemoved) {
  leave(of_the_dead("writing", "step-000000005"));
  const Folder folder(runs_);
  EXPECT_TRUE(names_in(runs_).empty());
}

TEST_F(Leftovers, OfAReusedPidAreRemoved) {
  leave(".writing-" + std::to_string(::getpid()) + "-1-step-000000005");
  const Folder folder(runs_);
  EXPECT_TRUE(names_in(runs_).empty());
}

TEST_F(Leftovers, OfALivingWriterStay) {
  leave(writing_name("step-000000005"));
  const Folder folder(runs_);
  EXPECT_THAT(names_in(runs_), ElementsAre(writing_name("step-000000005")));
}

TEST_F(Leftovers, WithNamesThatAreNotOursStay) {
  const std::vector<std::string> names = {".writing-",     ".writing-5",        ".writing-5-6",
                                          ".writing-5-6-", ".writing-a-6-step", ".writing-99999999999999999999-1-x"};
  for (const std::string& name : names) leave(name);
  const Folder folder(runs_);
  EXPECT_THAT(names_in(runs_), testing::UnorderedElementsAreArray(names));
}

TEST_F(Leftovers, AreNoCheckpoints) {
  leave(of_the_dead("writing", "step-000000005"));
  EXPECT_FALSE(has_checkpoints(runs_));
}

TEST_F(Leftovers, OneMovedAsideComesBackIfItsSuccessorDidNotArrive) {
  {
    Folder folder(runs_);
    std::filesystem::rename(save(folder, 5), runs_ / of_the_dead("replaced", "step-000000005"));
  }
  EXPECT_TRUE(has_checkpoints(runs_));
  leave(of_the_dead("writing", "step-000000005"));
  const Folder folder(runs_);
  EXPECT_THAT(names_in(runs_), ElementsAre("step-000000005"));
  EXPECT_EQ(newest_step(folder), 5);
}

TEST_F(Leftovers, OneMovedAsideGoesIfItsSuccessorArrived) {
  {
    Folder folder(runs_);
    std::filesystem::rename(save(folder, 5, 1), runs_ / of_the_dead("replaced", "step-000000005"));
    save(folder, 5, 2);
  }
  const Folder folder(runs_);
  EXPECT_THAT(names_in(runs_), ElementsAre("step-000000005"));
  EXPECT_EQ(first_weight(*folder.newest()), 2);
}

}  // namespace
}  // namespace trireme::checkpoint
