#include <trireme/watch/orphan_watch.h>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>
#include <chrono>
#include <csignal>

namespace trireme::watch::orphan_watch_test {
namespace {

// The launcher is killed once its worker watches it. The worker tells through a pipe whether it
// was asked to stop.
TEST(OrphanWatch, AsksTheWorkerToStopSomeTimeAfterItsLauncherIsGone) {
  int told[2], watching[2];
  ASSERT_EQ(::pipe(told), 0);
  ASSERT_EQ(::pipe(watching), 0);
  const pid_t launcher = ::fork();
  if (launcher == 0) {
    const pid_t self = ::getpid();
    if (::fork() == 0) {
      static volatile sig_atomic_t asked = 0;
      std::signal(SIGTERM, [](int) { asked = 1; });
      const OrphanWatch watch(self, Milliseconds(50));
      (void)!::write(watching[1], "x", 1);
      for (int i = 0; i < 8000 && !asked; ++i) ::usleep(1000);
      const char answer = asked ? 's' : 'n';
      (void)!::write(told[1], &answer, 1);
      ::_exit(0);
    }
    for (;;) ::pause();
  }
  char ignored = 0, answer = 0;
  ASSERT_EQ(::read(watching[0], &ignored, 1), 1);
  ::kill(launcher, SIGKILL);
  ::waitpid(launcher, nullptr, 0);
  ASSERT_EQ(::read(told[0], &answer, 1), 1);
  EXPECT_EQ(answer, 's');
  for (const int end : {told[0], told[1], watching[0], watching[1]}) ::close(end);
}

struct Worker {
  bool is_member = false, has_other_launchers = false;
  Milliseconds stop_grace{30'000};
};
// Returns how long a worker that ignores SIGTERM lives after its launcher was killed, up to
// `at_most`.
Milliseconds lives_on(const Worker& as, Milliseconds at_most) {
  int lives[2], watching[2];
  EXPECT_EQ(::pipe2(lives, O_CLOEXEC), 0);
  EXPECT_EQ(::pipe2(watching, O_CLOEXEC), 0);
  const pid_t launcher = ::fork();
  if (launcher == 0) {
    const pid_t self = ::getpid();
    ::close(lives[0]);
    if (::fork() == 0) {
      std::signal(SIGTERM, SIG_IGN);
      OrphanWatch watch(self, Milliseconds(50), as.stop_grace);
      if (as.is_member) watch.note_membership(as.has_other_launchers);
      const pid_t worker = ::getpid();
      (void)!::write(watching[1], &worker, sizeof worker);
      for (;;) ::pause();
    }
    for (;;) ::pause();
  }
  ::close(lives[1]);
  pid_t worker = 0;
  EXPECT_EQ(::read(watching[0], &worker, sizeof worker), static_cast<ssize_t>(sizeof worker));
  const auto since = std::chrono::steady_clock::now();
  ::kill(launcher, SIGKILL);
  ::waitpid(launcher, nullptr, 0);
  pollfd end{lives[0], POLLIN, 0};  // Now only the worker holds the other end.
  if (::poll(&end, 1, static_cast<int>(at_most.count())) == 0) ::kill(worker, SIGKILL);
  for (const int each : {lives[0], watching[0], watching[1]}) ::close(each);
  return std::chrono::duration_cast<Milliseconds>(std::chrono::steady_clock::now() - since);
}

TEST(OrphanWatch, EndsAWorkerThatHasNothingToSaveAtOnce) {
  EXPECT_LT(lives_on({}, Milliseconds(20'000)), Milliseconds(20'000));
}

TEST(OrphanWatch, LeavesAMemberItsTimeToSave) {
  EXPECT_GE(lives_on({.is_member = true}, Milliseconds(2000)), Milliseconds(2000));
}

TEST(OrphanWatch, LeavesAMemberToTheOtherLaunchersOfItsJob) {
  Worker worker{.is_member = true, .stop_grace = Milliseconds(50)};
  EXPECT_LT(lives_on(worker, Milliseconds(20'000)), Milliseconds(20'000));
  worker.has_other_launchers = true;
  EXPECT_GE(lives_on(worker, Milliseconds(2000)), Milliseconds(2000));
}

}  // namespace
}  // namespace trireme::watch::orphan_watch_test
