#include <trireme/base/process_id.h>

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>
#include <csignal>

namespace trireme::process_id_test {
namespace {

TEST(ProcessId, DoesNotLiveAfterItsProcessEndedEvenIfItIsNotReaped) {
  EXPECT_TRUE(ProcessId::of_this_process().lives());
  const pid_t child = ::fork();
  if (child == 0)
    for (;;) ::pause();
  const ProcessId id = ProcessId::of(child);
  EXPECT_TRUE(id.lives());
  ::kill(child, SIGKILL);
  siginfo_t info{};
  ASSERT_EQ(::waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOWAIT), 0);
  EXPECT_FALSE(id.lives());  // The child is a zombie.
  ::waitpid(child, nullptr, 0);
  EXPECT_FALSE(id.lives());
}

TEST(ProcessId, IsNotALaterProcessOfTheSameNumber) {
  ProcessId earlier = ProcessId::of_this_process();
  earlier.started -= 1;
  EXPECT_FALSE(earlier.lives());
}

TEST(ProcessId, CannotJudgeAProcessOfAnotherPlace) {
  ProcessId elsewhere = ProcessId::of_this_process();
  elsewhere.place = "another boot";
  EXPECT_FALSE(elsewhere.is_here());
  EXPECT_FALSE(elsewhere.lives());
}

TEST(ProcessId, WithoutAProcessDoesNotLive) { EXPECT_FALSE(ProcessId().lives()); }

}  // namespace
}  // namespace trireme::process_id_test
