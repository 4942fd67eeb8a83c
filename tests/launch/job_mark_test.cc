#include <trireme/launch/job_mark.h>

#include <gmock/gmock.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <trireme/launch/supervisor.h>
#include <csignal>

#include "processes.h"

namespace trireme::launch::job_mark_test {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

SupervisorOptions on_nodes(int nodes, int port) {
  SupervisorOptions options;
  options.nodes = nodes;
  options.rendezvous = {"127.0.0.1", port};
  return options;
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

TEST(JobMark, IsTheSameForAllLaunchersOfAJobOnSeveralNodes) {
  EXPECT_EQ(mark_of_job(on_nodes(2, 29500), "token").job,
            mark_of_job(on_nodes(2, 29500), "token").job);
  EXPECT_NE(mark_of_job(on_nodes(2, 29500), "token").job,
            mark_of_job(on_nodes(2, 29501), "token").job);
  EXPECT_NE(mark_of_job(on_nodes(2, 29500), "token").job,
            mark_of_job(on_nodes(2, 29500), "another").job);
  // On one node each start is a job of its own, whatever its token.
  EXPECT_NE(mark_of_job(on_nodes(1, 29500), "token").job,
            mark_of_job(on_nodes(1, 29500), "token").job);
}

TEST(JobMark, TravelsAsText) {
  const JobMark mark = mark_of_job(on_nodes(3, 29500), "token");
  const auto read = JobMark::from_text(mark.to_text());
  ASSERT_TRUE(read);
  EXPECT_EQ(read->job, mark.job);
  EXPECT_EQ(read->nodes, 3);
  EXPECT_EQ(read->launcher, mark.launcher);
  for (const char* text : {"", "no json", "[1, 2]", "{}"}) EXPECT_FALSE(JobMark::from_text(text));
}

TEST(JobMark, FindsOnlyTheProcessesOfItsLauncher) {
  const JobMark one = mark_of_job({}, ""), other = mark_of_job({}, "");
  const pid_t child = start_marked(one, "echo; exec sleep 1000");
  EXPECT_THAT(processes_of(one), ElementsAre(child));
  EXPECT_THAT(processes_of(other), IsEmpty());
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
}

TEST(JobMark, OrphansAreAskedOnceAndKilledWhenTheirTimeIsOver) {
  const JobMark mark = mark_of_job({}, "");
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
}  // namespace trireme::launch::job_mark_test
