#include <trireme/checkpoint/folder_lock.h>

#include <gmock/gmock.h>
#include <sys/wait.h>
#include <unistd.h>
#include <csignal>
#include <thread>

#include "folder_testing.h"

namespace trireme::checkpoint {
namespace {

using testing::Contains;
using testing::Not;

class FolderLock : public CheckpointFolder {
 protected:
  // A process that has the folder until it is killed.
  pid_t holder() {
    int ready[2];
    if (::pipe(ready) != 0) return -1;
    const pid_t child = ::fork();
    if (child == 0) {
      const auto lock = lock_folder(disk(), folder_);
      (void)!::write(ready[1], "x", 1);
      for (;;) ::pause();
    }
    char ignored = 0;
    (void)!::read(ready[0], &ignored, 1);
    ::close(ready[0]);
    ::close(ready[1]);
    return child;
  }
};

TEST_F(FolderLock, ASecondJobIsRefusedByWhoHasTheFolder) {
  const Folder first(runs_);
  EXPECT_TRUE(fails_with(ErrorCode::invalid_argument,
                         {runs_, "process " + std::to_string(::getpid()), "on host", "since 20"},
                         [&] { Folder second(runs_); }));
}

TEST_F(FolderLock, AnotherProcessIsNamedAndItsDeathFreesTheFolderAtOnce) {
  const pid_t other = holder();
  ASSERT_GT(other, 0);
  EXPECT_TRUE(fails_with(ErrorCode::invalid_argument, {"process " + std::to_string(other)},
                         [&] { lock_folder(disk(), folder_); }));
  ::kill(other, SIGKILL);
  ::waitpid(other, nullptr, 0);
  EXPECT_THAT(names_in(folder_), Contains(".lock"));  // Nobody could remove it.
  lock_folder(disk(), folder_).reset();
  EXPECT_THAT(names_in(folder_), Not(Contains(".lock")));
}

TEST_F(FolderLock, IsWaitedForByWhoAsksForThat) {
  const pid_t other = holder();
  ASSERT_GT(other, 0);
  std::jthread killer([other] {
    std::this_thread::sleep_for(
        Milliseconds(50));  // Before or after the first look: either way it is had.
    ::kill(other, SIGKILL);
  });
  lock_folder(disk(), folder_, Milliseconds(10'000)).reset();
  ::waitpid(other, nullptr, 0);
}

TEST_F(FolderLock, IsFreeForTheNextOneAndLeavesNoFile) {
  for (int i = 0; i < 3; ++i) {
    const Folder folder(runs_);
    EXPECT_THAT(names_in(runs_), Contains(".lock"));
  }
  EXPECT_TRUE(names_in(runs_).empty());
}

TEST_F(FolderLock, CanBeAskedForWithoutTakingIt) {
  require_free(runs_);  // Not there: free.
  EXPECT_FALSE(std::filesystem::exists(runs_));
  const Folder folder(runs_);
  EXPECT_TRUE(fails_with(ErrorCode::invalid_argument, {"in use"}, [&] { require_free(runs_); }));
}

TEST_F(FolderLock, DoesNotKeepReadersOut) {
  Folder folder(runs_);
  save(folder, 4);
  EXPECT_EQ(newest_in(runs_)->manifest.step, 4);
}

}  // namespace
}  // namespace trireme::checkpoint
