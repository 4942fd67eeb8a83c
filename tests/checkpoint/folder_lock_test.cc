#include <trireme/checkpoint/folder_lock.h>

#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/wait.h>
#include <unistd.h>
#include <atomic>
#include <csignal>
#include <fstream>
#include <thread>
#include <vector>

#include "folder_testing.h"

namespace trireme::checkpoint::folder_lock_test {
namespace {

using testing::Contains;
using testing::Not;

class FolderLock : public CheckpointFolder {
 protected:
  // Starts a process that has the folder until it is killed. The process belongs to the job of
  // `mark`, if there is one.
  pid_t holder(const watch::JobMark& mark = {}) {
    int ready[2];
    if (::pipe(ready) != 0) return -1;
    const pid_t child = ::fork();
    if (child == 0) {
      if (!mark.job.empty()) ::setenv("TRIREME_JOB", mark.to_text().c_str(), 1);
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
  // Starts a holder whose environment shows the mark, as that of a worker does. SIGTERM ends it.
  pid_t worker(const watch::JobMark& mark) {
    int ready[2];
    if (::pipe2(ready, O_CLOEXEC) != 0) return -1;
    const pid_t child = ::fork();
    if (child == 0) {
      ::setenv("TRIREME_JOB", mark.to_text().c_str(), 1);
      const auto lock = lock_folder(disk(), folder_);
      // The lock passes to the next programme with the file.
      for (int file = 3; file < 1024; ++file)
        if (file != ready[1]) ::fcntl(file, F_SETFD, 0);
      ::execl("/bin/sleep", "sleep", "1000", nullptr);
      ::_exit(127);
    }
    ::close(ready[1]);
    char ignored = 0;
    (void)!::read(ready[0], &ignored, 1);  // The end of the file: the next programme runs.
    ::close(ready[0]);
    return child;
  }
  static watch::JobMark mark_of(const std::string& job, const ProcessId& launcher, int nodes = 1) {
    return {job, nodes, launcher};
  }
  static ProcessId dead() {
    ProcessId gone = ProcessId::of_this_process();
    gone.started -= 1;
    return gone;
  }
  static void end(pid_t process) {
    ::kill(process, SIGKILL);
    ::waitpid(process, nullptr, 0);
  }
};

TEST_F(FolderLock, ASecondJobIsRefusedByTheHoldersName) {
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
  // No process could remove it.
  EXPECT_THAT(names_in(folder_), Contains(".lock"));
  lock_folder(disk(), folder_).reset();
  EXPECT_THAT(names_in(folder_), Not(Contains(".lock")));
}

TEST_F(FolderLock, IsWaitedForIfTheCallerAsksForIt) {
  const pid_t other = holder();
  ASSERT_GT(other, 0);
  std::jthread killer([other] {
    // It was killed before or after the first look; the lock is taken in both cases.
    std::this_thread::sleep_for(Milliseconds(50));
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

TEST_F(FolderLock, IsLookedAtByALauncherWithoutBeingTaken) {
  // A folder that does not exist is free.
  EXPECT_FALSE(make_way(runs_, {}, Milliseconds(0)).by_own_job);
  EXPECT_FALSE(std::filesystem::exists(runs_));
  const Folder folder(runs_);
  EXPECT_TRUE(fails_with(ErrorCode::invalid_argument, {"in use"},
                         [&] { make_way(runs_, {}, Milliseconds(0)); }));
}

TEST_F(FolderLock, OfAJobWhoseLauncherLivesIsRefusedToOthersAndLetsItsOwnPass) {
  const auto mark = mark_of("job", ProcessId::of_this_process(), 2);
  const pid_t other = holder(mark);
  EXPECT_TRUE(fails_with(ErrorCode::invalid_argument, {"process " + std::to_string(other)}, [&] {
    make_way(folder_, mark_of("another", ProcessId::of_this_process()), Milliseconds(0));
  }));
  EXPECT_TRUE(make_way(folder_, mark, Milliseconds(0)).by_own_job);
  // The process was forked, so its environment does not show.
  EXPECT_TRUE(watch::processes_of(mark).empty());
  EXPECT_EQ(::kill(other, 0), 0);
  end(other);
}

TEST_F(FolderLock, OfADeadLauncherIsWaitedForAndAnotherAttemptHelps) {
  const pid_t other = holder(mark_of("job", dead()));
  EXPECT_TRUE(fails_with(ErrorCode::peer_lost, {"still held", std::to_string(other)},
                         [&] { lock_folder(disk(), folder_, Milliseconds(600)); }));
  std::jthread killer([other] {
    std::this_thread::sleep_for(Milliseconds(100));
    ::kill(other, SIGKILL);
  });
  EXPECT_FALSE(make_way(folder_, mark_of("next", ProcessId::of_this_process()), Milliseconds(0))
                   .by_own_job);
  ::waitpid(other, nullptr, 0);
}

TEST_F(FolderLock, AWorkerEndsOrphansThatTookItAfterItsLauncherHadLooked) {
  const pid_t orphan = worker(mark_of("job", dead()));
  // A process that no launcher started ends none.
  EXPECT_TRUE(fails_with(ErrorCode::peer_lost, {"still held", std::to_string(orphan)},
                         [&] { lock_folder(disk(), folder_, Milliseconds(600)); }));
  ::setenv("TRIREME_JOB", mark_of("next", ProcessId::of_this_process()).to_text().c_str(), 1);
  EXPECT_NO_THROW(lock_folder(disk(), folder_).reset());
  ::unsetenv("TRIREME_JOB");
  int status = 0;
  if (::waitpid(orphan, &status, WNOHANG) == 0) end(orphan);
  EXPECT_TRUE(WIFSIGNALED(status));
}

TEST_F(FolderLock, OfAMemberOfTheSameJobIsWaitedForOnlyByALauncherThatBeginsAnew) {
  const pid_t other = holder(mark_of("job", dead(), 2));
  const auto job = mark_of("job", ProcessId::of_this_process(), 2);
  EXPECT_TRUE(make_way(folder_, job, Milliseconds(0)).by_own_job);
  std::jthread killer([other] {
    std::this_thread::sleep_for(Milliseconds(100));
    ::kill(other, SIGKILL);
  });
  EXPECT_FALSE(make_way(folder_, job, Milliseconds(0), /*begins_anew=*/true).by_own_job);
  ::waitpid(other, nullptr, 0);
}

TEST_F(FolderLock, LaunchersThatLookDisturbNeitherEachOtherNorAWorker) {
  std::ofstream(folder_ / ".lock") << "of a process that is gone";
  std::vector<std::jthread> launchers;
  std::atomic<bool> stop = false;
  for (int i = 0; i < 3; ++i)
    launchers.emplace_back([&] {
      while (!stop) make_way(folder_, mark_of("job", ProcessId::of_this_process(), 2), {});
    });
  for (int i = 0; i < 50; ++i) {
    // Acts like a worker of the same job that its launcher has informed.
    ::setenv("TRIREME_JOB", mark_of("job", ProcessId::of_this_process(), 2).to_text().c_str(), 1);
    EXPECT_NO_THROW(lock_folder(disk(), folder_).reset());
  }
  stop = true;
  launchers.clear();
  ::unsetenv("TRIREME_JOB");
}

TEST_F(FolderLock, DoesNotKeepReadersOut) {
  Folder folder(runs_);
  save(folder, 4);
  EXPECT_EQ(newest_in(runs_)->manifest.step, 4);
}

}  // namespace
}  // namespace trireme::checkpoint::folder_lock_test
