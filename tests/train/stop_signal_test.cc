// A worker's requests to stop. Each case runs in a child process, which the last request may kill.
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/wait.h>
#include <trireme/train/stop_signal.h>
#include <trireme/watch/stop_request.h>
#include <unistd.h>
#include <csignal>
#include <functional>

namespace trireme::stop_signal_test {
namespace {

void ask_as_user() { ::kill(::getpid(), SIGTERM); }
void ask_as_trireme() { watch::ask_to_stop(::getpid()); }
void let_time_pass() { ::poll(nullptr, 0, 600); }  // A second request counts after half a second.

// Returns the signal that killed a process while it made these requests, or 0 if it lives and
// knows that it was asked to stop.
int end_of(const std::function<void()>& requests) {
  const pid_t child = ::fork();
  if (child == 0) {
    const StopSignal stop;
    requests();
    ::_exit(StopSignal::requested() ? 0 : 1);
  }
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  if (WIFSIGNALED(status)) return WTERMSIG(status);
  EXPECT_EQ(WEXITSTATUS(status), 0);
  return 0;
}

TEST(StopSignal, TheUsersSecondRequestEndsTheProcess) {
  EXPECT_EQ(end_of([] {
              ask_as_user();
              let_time_pass();
              ask_as_user();
            }),
            SIGTERM);
}

TEST(StopSignal, TriremesOwnRequestsNeverCountAsTheSecond) {
  EXPECT_EQ(end_of([] {
              ask_as_trireme();
              let_time_pass();
              ask_as_trireme();
              ask_as_user();
              let_time_pass();
              ask_as_trireme();
            }),
            0);
}

TEST(StopSignal, TheUsersSecondRequestEndsTheProcessThatTriremeHasAskedToo) {
  EXPECT_EQ(end_of([] {
              ask_as_trireme();
              ask_as_user();
              let_time_pass();
              ask_as_user();
            }),
            SIGTERM);
}

}  // namespace
}  // namespace trireme::stop_signal_test
