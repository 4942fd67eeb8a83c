#include <trireme/launch/supervisor.h>

#include <gmock/gmock.h>

#include <sys/stat.h>
#include <trireme/net/message.h>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <string>

#include "forked_job.h"

namespace trireme::launch::supervisor_test {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using tests::becomes_true;
using tests::ForkedJob;
using tests::is_alive;
using tests::shell_job;

namespace fs = std::filesystem;

// A folder that lives as long as the object.
class Folder {
 public:
  Folder() {
    std::string name = (fs::temp_directory_path() / "trireme-supervisor-XXXXXX").string();
    path_ = ::mkdtemp(name.data());
  }
  ~Folder() { fs::remove_all(path_); }
  Folder(const Folder&) = delete;
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

constexpr const char* kStopsWhenAsked =
    "trap 'echo asked; exit 143' TERM; echo ready; while :; do sleep 0.01; done";
constexpr const char* kIgnoresStop = "trap '' TERM; echo ready; sleep 1000";

TEST(Supervisor, RunsEachWorkerAndPrefixesItsLines) {
  ForkedJob job(
      shell_job(3, "echo worker $TRIREME_WORKER of $TRIREME_WORKERS; echo complaint >&2"));
  EXPECT_EQ(job.finish(), 0);
  for (const char* worker : {"0", "1", "2"}) {
    EXPECT_THAT(job.printed,
                HasSubstr(std::string("[") + worker + "] worker " + worker + " of 3\n"));
    EXPECT_THAT(job.complained, HasSubstr(std::string("[") + worker + "] complaint\n"));
  }
  EXPECT_THAT(job.complained, Not(HasSubstr("job ends with")));
}

TEST(Supervisor, KeepsTheOrderOfAWorkersLines) {
  ForkedJob job(shell_job(2,
                          "i=0; while [ $i -lt 2000 ]; do echo line $i of $TRIREME_WORKER; "
                          "i=$((i+1)); done; printf last"));
  EXPECT_EQ(job.finish(), 0);
  for (const int worker : {0, 1}) {
    size_t at = 0;
    for (int i = 0; i < 2000 && at != std::string::npos; ++i) {
      at = job.printed.find("[" + std::to_string(worker) + "] line " + std::to_string(i) + " of " +
                                std::to_string(worker) + "\n",
                            at);
    }
    EXPECT_NE(at, std::string::npos) << "worker " << worker;
    EXPECT_THAT(job.printed, HasSubstr("[" + std::to_string(worker) + "] last\n"));
  }
}

TEST(Supervisor, LetsTheCallerSwallowLines) {
  SupervisorOptions options = shell_job(1, "echo keep; echo progress");
  options.prefix_output = false;
  options.on_line = [](int, const std::string& line) { return line == "progress"; };
  ForkedJob job(options);
  EXPECT_EQ(job.finish(), 0);
  EXPECT_EQ(job.printed, "keep\n");
}

TEST(Supervisor, LetsOtherWorkersContinueAfterOneIsDone) {
  ForkedJob job(shell_job(2, "[ $TRIREME_WORKER = 0 ] && exit 0; sleep 0.4; echo done"));
  EXPECT_EQ(job.finish(), 0);
  EXPECT_THAT(job.printed, HasSubstr("[1] done"));
}

TEST(Supervisor, EndsTheJobWithAFailingWorkersCode) {
  ForkedJob job(shell_job(3, "[ $TRIREME_WORKER = 1 ] && exit 3; sleep 1000"));
  EXPECT_EQ(job.finish(), 3);
  EXPECT_THAT(job.complained, HasSubstr("trireme: worker 1 (pid "));
  EXPECT_THAT(job.complained, HasSubstr("failed with exit code 3; job ends with 3"));
}

TEST(Supervisor, CanBeTriedAgainAfterAKill) {
  ForkedJob job(shell_job(2, "echo pid$TRIREME_WORKER $$; sleep 1000"));
  ::kill(job.number_after("pid1 "), SIGKILL);
  EXPECT_EQ(job.finish(), 138);
  EXPECT_THAT(job.complained, HasSubstr("was killed by signal 9 (SIGKILL); job ends with 138"));
}

TEST(Supervisor, ACrashBeforeTheFirstStepIsFinal) {
  ForkedJob job(shell_job(2, "[ $TRIREME_WORKER = 1 ] && kill -SEGV $$; sleep 1000"));
  EXPECT_EQ(job.finish(), 1);
  EXPECT_THAT(job.complained, HasSubstr("worker 1"));
  EXPECT_THAT(job.complained, HasSubstr("SIGSEGV"));
}

TEST(Supervisor, KillsWorkersThatIgnoreSigtermAfterAFailure) {
  ForkedJob job(shell_job(2, "trap '' TERM; [ $TRIREME_WORKER = 1 ] && exit 5; sleep 1000"));
  EXPECT_EQ(job.finish(), 5);
}

TEST(Supervisor, NamesAProgramThatCannotBeStarted) {
  SupervisorOptions options = shell_job(3, "");
  options.command = {"no-such-program-7f3a"};
  ForkedJob job(options);
  EXPECT_EQ(job.finish(), 2);
  EXPECT_THAT(job.complained, HasSubstr("'no-such-program-7f3a'"));
  EXPECT_THAT(job.complained, HasSubstr("not found"));
}

class SupervisorSignal : public ::testing::TestWithParam<int> {};

TEST_P(SupervisorSignal, IsPassedOnOnceAsSigterm) {
  ForkedJob job(shell_job(2, kStopsWhenAsked));
  job.wait_for("ready\n", 2);
  job.signal(GetParam());
  EXPECT_EQ(job.finish(), 143);
  EXPECT_THAT(job.printed, HasSubstr("[0] asked\n"));
  EXPECT_THAT(job.printed, HasSubstr("[1] asked\n"));
  EXPECT_THAT(job.complained, HasSubstr("job ends with 143"));
}
INSTANTIATE_TEST_SUITE_P(Each, SupervisorSignal, ::testing::Values(SIGINT, SIGTERM, SIGHUP));

TEST(Supervisor, StopsProgramsThatDoNotHandleSigterm) {
  ForkedJob job(shell_job(2, "echo ready; sleep 1000"));
  job.wait_for("ready\n", 2);
  job.signal(SIGTERM);
  EXPECT_EQ(job.finish(), 143);
}

TEST(Supervisor, KillsAtASecondSignal) {
  ForkedJob job(shell_job(2, kIgnoresStop));
  job.wait_for("ready\n", 2);
  int sent = 0;
  EXPECT_TRUE(becomes_true([&] {
    if (!is_alive(job.pid())) return true;
    job.signal(SIGINT);
    ++sent;
    std::this_thread::sleep_for(Milliseconds(50));
    return false;
  }));
  EXPECT_GE(sent, 2);
  EXPECT_EQ(job.finish(), 143);
  EXPECT_THAT(job.complained, HasSubstr("was killed"));
}

TEST(Supervisor, KillsAfterTheGraceTime) {
  SupervisorOptions options = shell_job(2, kIgnoresStop);
  options.stop_grace = Milliseconds(100);
  ForkedJob job(options);
  job.wait_for("ready\n", 2);
  job.signal(SIGTERM);
  EXPECT_EQ(job.finish(), 143);
  EXPECT_THAT(job.complained, HasSubstr("did not end in time and was killed"));
}

TEST(Supervisor, TheUsersFirstRequestIsNotASecondOneForAWorkerThatWasAskedToSave) {
  const Folder folder;
  const std::string go = (folder.path() / "go").string();
  ASSERT_EQ(::mkfifo(go.c_str(), 0600), 0);
  SupervisorOptions options =
      shell_job(2, "[ $TRIREME_WORKER = 1 ] && { read line < " + go +
                       "; exit 1; }; n=0; trap 'n=$((n+1)); echo asked $n' TERM; echo ready; "
                       "while :; do sleep 0.01; done");
  options.elastic = {1, 2};
  options.stop_grace = Milliseconds(1500);
  ForkedJob job(options);
  job.wait_for("ready\n");
  std::ofstream(go) << "now\n";  // A worker fails for good, so the other one is asked to save.
  job.wait_for("asked 1\n");
  job.signal(SIGTERM);
  job.finish();
  EXPECT_THAT(job.printed, Not(HasSubstr("asked 2")));
}

// A program that a test can take away: a script in a folder of its own.
class Replacement : public ::testing::Test {
 protected:
  Replacement() {
    options_.workers = 2;
    options_.elastic = {1, 2};
    options_.command = {program_.string()};
    std::ofstream(program_) << "#!/bin/sh\necho pid$TRIREME_WORKER $$\n"
                               "trap 'echo saved; exit 143' TERM\n"
                               "while :; do sleep 0.01; done\n";
    fs::permissions(program_, fs::perms::owner_all);
  }
  void take_the_program_away() { fs::rename(program_, aside_); }
  void bring_the_program_back() { fs::rename(aside_, program_); }

  Folder folder_;
  const fs::path program_ = folder_.path() / "program", aside_ = folder_.path() / "aside";
  SupervisorOptions options_;
};

TEST_F(Replacement, IsTriedAgainIfItCannotBeStarted) {
  ForkedJob job(options_);
  job.wait_for("pid", 2);
  take_the_program_away();
  ::kill(job.number_after("pid1 "), SIGKILL);
  job.wait_for_complaint("worker process 1 cannot be replaced now: ");
  bring_the_program_back();
  job.wait_for("pid1 ", 2);
  job.signal(SIGTERM);
  EXPECT_EQ(job.finish(), 143);
}

TEST_F(Replacement, ThatCanNeverBeStartedLetsTheOthersSave) {
  ForkedJob job(options_);
  job.wait_for("pid", 2);
  take_the_program_away();
  ::kill(job.number_after("pid1 "), SIGKILL);
  job.wait_for("[0] saved");
  EXPECT_EQ(job.finish(), 138);
  EXPECT_THAT(job.complained, HasSubstr("'" + program_.string() + "': it was not found"));
  EXPECT_THAT(job.complained, HasSubstr("worker process 1 could not be replaced, "));
}

TEST_F(Replacement, OfTheLastWorkerIsTriedAgainToo) {
  options_.workers = 1;
  options_.elastic = {1, 1};
  ForkedJob job(options_);
  job.wait_for("pid0 ");
  take_the_program_away();
  ::kill(job.number_after("pid0 "), SIGKILL);
  EXPECT_EQ(job.finish(), 138);
}

TEST(Supervisor, ContinuesIfANoticeCannotBeWrittenDown) {
  SupervisorOptions options = shell_job(2, "echo pid$TRIREME_WORKER $$; sleep 1000");
  options.on_notice = [](const Json&) { throw Error(ErrorCode::io, "test", "the disk is full"); };
  ForkedJob job(options);
  ::kill(job.number_after("pid1 "), SIGKILL);
  EXPECT_EQ(job.finish(), 138);
  EXPECT_THAT(job.complained, HasSubstr("the line above is not in the log: [test] the disk is"));
}

TEST(Supervisor, LeavesNoDescendantBehind) {
  ForkedJob job(
      shell_job(1, "sleep 1000 & echo inside $!; setsid sleep 1000 & echo outside $!; exit 0"));
  const int inside = job.number_after("inside ");
  const int outside = job.number_after("outside ");
  EXPECT_EQ(job.finish(), 0);
  EXPECT_FALSE(is_alive(inside));
  EXPECT_FALSE(is_alive(outside));
}

TEST(Supervisor, TakesItsWorkersWithItWhenItIsKilled) {
  ForkedJob job(shell_job(2, "echo pid$TRIREME_WORKER $$; exec sleep 1000"));
  const int first = job.number_after("pid0 ");
  const int second = job.number_after("pid1 ");
  job.signal(SIGKILL);
  EXPECT_TRUE(
      becomes_true([&] { return !is_alive(first) && !is_alive(second); }, Milliseconds(2000)));
}

TEST(Supervisor, DoesNotLoseOutputForASlowReader) {
  ForkedJob job(shell_job(
      2, "i=0; while [ $i -lt 500 ]; do printf '%01500d\\n' $i; i=$((i+1)); done; echo last"));
  // After this time the job has printed more than a pipe and the supervisor hold.
  std::this_thread::sleep_for(Milliseconds(300));
  EXPECT_EQ(job.finish(), 0);
  EXPECT_EQ(job.printed.size(), 2 * (500 * (4 + 1501) + std::string("[0] last\n").size()));
}

TEST(Supervisor, DistributesWorkersOverNodes) {
  SupervisorOptions first = shell_job(
      3, "echo $TRIREME_WORKER $TRIREME_LOCAL_WORKER $TRIREME_LOCAL_WORKERS $TRIREME_RENDEZVOUS");
  first.nodes = 2;
  first.rendezvous = {"127.0.0.1", net::free_port()};
  SupervisorOptions second = first;
  second.node = 1;
  const std::string token(64, '7');
  ForkedJob second_job(second, token);
  ForkedJob first_job(first, token);
  EXPECT_EQ(first_job.finish(), 0);
  EXPECT_EQ(second_job.finish(), 0);
  EXPECT_THAT(first_job.printed, HasSubstr("[0] 0 0 2 " + first.rendezvous.describe() + "\n"));
  EXPECT_THAT(first_job.printed, HasSubstr("[1] 1 1 2 " + first.rendezvous.describe() + "\n"));
  EXPECT_EQ(second_job.printed, "[2] 2 0 1 " + first.rendezvous.describe() + "\n");
}

TEST(Supervisor, RefusesSeveralNodesWithoutAToken) {
  SupervisorOptions options = shell_job(2, "true");
  options.nodes = 2;
  options.rendezvous = {"127.0.0.1", 29500};
  ForkedJob job(options);
  EXPECT_EQ(job.finish(), 2);
  EXPECT_THAT(job.complained, HasSubstr("TRIREME_JOB_TOKEN"));
}

}  // namespace
}  // namespace trireme::launch::supervisor_test
