#include <trireme/launch/orphan_watch.h>

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>
#include <csignal>

namespace trireme::launch {
namespace {

// A launcher that is killed once its worker watches it; how the worker ended comes by a pipe from a
// process between the two.
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

}  // namespace
}  // namespace trireme::launch
