#include <trireme/watch/job_mark.h>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <trireme/watch/stop_request.h>
#include <csignal>
#include <cstdlib>

#include "processes.h"

namespace trireme::watch::job_mark_test {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// The mark of a job whose launcher is this process. No other job has its name.
JobMark new_mark() {
  static int jobs = 0;
  const ProcessId self = ProcessId::of_this_process();
  return {fmt::format("{}-{}-{}", self.pid, self.started, ++jobs), 3, self};
}

// Starts a process with this mark that runs `script` in a shell.
pid_t start_marked(const JobMark& mark, const std::string& script) {
  int ready[2];
  if (::pipe(ready) != 0) return -1;
  const pid_t child = ::fork();
  if (child == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    ::dup2(ready[1], STDOUT_FILENO);
    ::setenv("TRIREME_JOB", mark.to_text().c_str(), 1);
    ::execl("/bin/sh", "sh", "-c", script.c_str(), nullptr);
    ::_exit(127);
  }
  char ignored = 0;
  (void)!::read(ready[0], &ignored, 1);  // The script has set its trap.
  ::close(ready[0]);
  ::close(ready[1]);
  return child;
}

// This process may be an orphan that a test below has started. It then tells by its exit code
// whether the request to stop is Trireme's own. This runs before main(), whose first line of
// output would tell the test too early that the orphan awaits the request.
const bool is_no_orphan = [] {
  if (!std::getenv("TRIREME_TEST_AWAITS_REQUEST")) return true;
  sigset_t awaited;
  sigemptyset(&awaited);
  sigaddset(&awaited, SIGTERM);
  ::sigprocmask(SIG_BLOCK, &awaited, nullptr);
  (void)!::write(STDOUT_FILENO, "\n", 1);
  siginfo_t request{};
  ::_exit(::sigwaitinfo(&awaited, &request) == SIGTERM && is_own_request(request) ? 0 : 1);
}();

TEST(JobMark, TravelsAsText) {
  const JobMark mark = new_mark();
  const auto read = JobMark::from_text(mark.to_text());
  ASSERT_TRUE(read);
  EXPECT_EQ(read->job, mark.job);
  EXPECT_EQ(read->nodes, 3);
  EXPECT_EQ(read->launcher, mark.launcher);
  for (const char* text : {"", "no json", "[1, 2]", "{}"}) EXPECT_FALSE(JobMark::from_text(text));
}

TEST(JobMark, FindsOnlyTheProcessesOfItsLauncher) {
  const JobMark one = new_mark(), other = new_mark();
  const pid_t child = start_marked(one, "echo; exec sleep 1000");
  EXPECT_THAT(processes_of(one), ElementsAre(child));
  EXPECT_THAT(processes_of(other), IsEmpty());
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
}

// The kernel shows no environment of a process while it replaces its programme.
TEST(JobMark, FindsAProcessThatReplacesItsProgramme) {
  const JobMark mark = new_mark();
  const std::string again = "exec /bin/sh -c \"$SCRIPT\"";
  ::setenv("SCRIPT", again.c_str(), 1);
  const pid_t child = start_marked(mark, "echo; " + again);
  for (int look = 0; look < 2000; ++look) ASSERT_THAT(processes_of(mark), ElementsAre(child));
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  ::unsetenv("SCRIPT");
}

TEST(JobMark, OrphansAreAskedByARequestThatIsNotTheUsers) {
  ASSERT_TRUE(is_no_orphan);
  const JobMark mark = new_mark();
  const pid_t orphan = start_marked(
      mark, fmt::format("TRIREME_TEST_AWAITS_REQUEST=1 exec /proc/{}/exe", ::getpid()));
  std::thread ending([&] { EXPECT_TRUE(end_orphans(mark, Milliseconds(8000))); });
  int status = 0;
  ::waitpid(orphan, &status, 0);
  ending.join();
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

TEST(JobMark, OrphansAreAskedOnceAndKilledWhenTheirTimeIsOver) {
  const JobMark mark = new_mark();
  const pid_t obeys =
      start_marked(mark, "trap 'exit 143' TERM; echo; while :; do sleep 0.01; done");
  const pid_t deaf = start_marked(mark, "trap '' TERM; echo; while :; do sleep 0.01; done");
  bool ended = false;
  std::thread ending([&] { ended = end_orphans(mark, Milliseconds(1000)); });
  int of_obeying = 0, of_deaf = 0;
  ::waitpid(obeys, &of_obeying, 0);
  ::waitpid(deaf, &of_deaf, 0);
  ending.join();
  EXPECT_TRUE(ended);
  EXPECT_TRUE(WIFEXITED(of_obeying));
  EXPECT_EQ(WEXITSTATUS(of_obeying), 143);
  EXPECT_TRUE(WIFSIGNALED(of_deaf));
}

}  // namespace
}  // namespace trireme::watch::job_mark_test
