// Jobs with side tasks, as real processes. This test programme is also the tasks' programme.
#include <gmock/gmock.h>

#include <fmt/format.h>
#include <trireme/base/environment.h>
#include <trireme/launch/supervisor.h>
#include <trireme/membership/identity.h>
#include <trireme/membership/member.h>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <string>
#include <thread>

#include "forked_job.h"

namespace trireme::launch::supervised_tasks_test {
namespace {

using membership::Identity;
using membership::Member;
using membership::MemberOptions;
using membership::OnLoss;
using membership::Role;
using membership::Roles;
using ::testing::HasSubstr;
using ::testing::Not;
using tests::ForkedJob;

// The time after which the workers of a test leave the job, given by name.
const std::string kAtOnce = "at once", kWhenATaskIsLost = "when a task is lost",
                  kWhenATaskIsBack = "when a task is back", kNever = "never";

void say_line(const std::string& line) {
  const std::string text = line + "\n";
  [[maybe_unused]] const auto written = ::write(STDOUT_FILENO, text.data(), text.size());
}

Deadline in_time() { return Deadline::after(Milliseconds(8000)); }

int run_side_task(const Identity& identity, const MemberOptions& options) {
  Member member(*identity.rendezvous, *identity.token, identity.task, {}, options);
  // The workers may end, and this task with them, as soon as they know the address.
  say_line(fmt::format("{} serves as {}", identity.task.name(), ::getpid()));
  member.set("address of " + identity.task.name(), fmt::format("host:{}", ::getpid()));
  say_line(identity.task.name() + " has told its address");
  tests::becomes_true([&] { return member.finish_wanted(); });
  member.leave();
  return 0;
}

int run_worker(const Identity& identity, const MemberOptions& options, const std::string& until) {
  Member member(*identity.rendezvous, *identity.token, identity.worker, identity.workers,
                identity.generation, {}, options);
  const auto look_up = [&] { return member.get("address of ps 0", in_time()); };
  say_line(fmt::format("worker{} {} found {}", identity.worker, ::getpid(), look_up()));
  const auto lost = [&] { return member.lost_tasks(); };
  if (until == kNever) {
    tests::becomes_true([&] { return member.is_lost(); });
    member.throw_if_lost();
  }
  if (until == kWhenATaskIsLost || until == kWhenATaskIsBack) {
    tests::becomes_true([&] { return !lost().empty(); });
    say_line("told of " + lost().front().who.task.name());
  }
  if (until == kWhenATaskIsBack) {
    tests::becomes_true([&] { return lost().front().is_back; });
    say_line(fmt::format("found again {}", look_up()));
  }
  member.barrier("the end");
  member.leave();
  return 0;
}

// Runs before any test: this process may be a task of a job that a test below has started.
class BecomeTask : public ::testing::Environment {
  void SetUp() override {
    const char* until = std::getenv("TRIREME_TEST_UNTIL");
    if (!until) return;
    try {
      const Identity identity = membership::resolve_identity(trireme::Environment::of_process());
      const MemberOptions options{.timeout = Milliseconds(8000),
                                  .heartbeat_interval = Milliseconds(20),
                                  .phases = watch::PhasePage::of_this_process()};
      ::_exit(identity.is_worker() ? run_worker(identity, options, until)
                                   : run_side_task(identity, options));
    } catch (const Error& error) {
      ::dprintf(STDERR_FILENO, "%s\n", error.what());
      ::_exit(exit_code_of(error));
    }
  }
};
[[maybe_unused]] const auto* const become_task =
    ::testing::AddGlobalTestEnvironment(new BecomeTask);

Role ps(int count = 1) { return {.name = "ps", .count = count, .on_loss = OnLoss::replace}; }
Role ps_that_runs(const std::string& script, int count = 1) {
  Role role = ps(count);
  role.command = {"sh", "-c", script};
  return role;
}
Role evaluator() { return {.name = "evaluator", .count = 1, .on_loss = OnLoss::tell}; }
Role chief() { return {.name = "chief", .count = 1}; }

SupervisorOptions task_job(const std::string& until, const std::vector<Role>& roles) {
  SupervisorOptions options;
  options.workers = 2;
  options.roles = Roles(roles);
  options.command = {"/proc/self/exe"};
  options.environment = {{"TRIREME_TEST_UNTIL", until}};
  options.loss_grace = Milliseconds(3000);
  return options;
}

TEST(SupervisedTasks, WorkersFindAParameterServerAndItEndsAfterThem) {
  ForkedJob job(task_job(kAtOnce, {ps()}));
  const int pid = job.number_after("[ps 0] ps 0 serves as ");
  EXPECT_EQ(job.finish(), 0);
  EXPECT_THAT(job.printed, HasSubstr(fmt::format(" found host:{}\n", pid)));
  EXPECT_THAT(job.complained, Not(HasSubstr("trireme:")));
  EXPECT_FALSE(tests::is_alive(pid));
}

TEST(SupervisedTasks, AKilledParameterServerIsReplacedInItsPlace) {
  ForkedJob job(task_job(kWhenATaskIsBack, {ps(), evaluator()}));
  const int pid = job.number_after("ps 0 serves as ");
  job.wait_for("found host", 2);
  ::kill(pid, SIGKILL);
  EXPECT_EQ(job.finish(), 0);
  EXPECT_THAT(job.complained, HasSubstr(fmt::format(
                                  "trireme: ps 0 (pid {}) was lost: killed by signal 9 (SIGKILL); "
                                  "another process gets its task",
                                  pid)));
  EXPECT_THAT(job.printed, HasSubstr("told of ps 0"));
  const size_t again =
      job.printed.find("ps 0 serves as ", job.printed.find("ps 0 serves as ") + 1);
  ASSERT_NE(again, std::string::npos) << job.printed;
  const int next = std::stoi(job.printed.substr(again + 15));
  EXPECT_NE(next, pid);
  EXPECT_THAT(job.printed, HasSubstr(fmt::format("found again host:{}\n", next)));
}

TEST(SupervisedTasks, TheOthersAreToldOfALostEvaluatorAndContinue) {
  ForkedJob job(task_job(kWhenATaskIsLost, {ps(), evaluator()}));
  const int pid = job.number_after("evaluator 0 serves as ");
  job.wait_for("found host", 2);
  ::kill(pid, SIGKILL);
  EXPECT_EQ(job.finish(), 0);
  EXPECT_THAT(job.printed, HasSubstr("told of evaluator 0"));
  EXPECT_THAT(job.complained,
              HasSubstr("killed by signal 9 (SIGKILL); the job continues without"));
}

TEST(SupervisedTasks, EndWithTheJobWhenAWorkerIsKilled) {
  ForkedJob job(task_job(kNever, {ps(), evaluator()}));
  const int pid = job.number_after("worker1 "), server = job.number_after("ps 0 serves as ");
  job.wait_for("found host", 2);
  ::kill(pid, SIGKILL);
  EXPECT_EQ(job.finish(), 138);
  EXPECT_THAT(job.complained, HasSubstr(fmt::format("trireme: worker 1 (pid {}, host ", pid)));
  EXPECT_THAT(job.complained, HasSubstr("job ends with 138"));
  EXPECT_FALSE(tests::is_alive(server));
}

TEST(SupervisedTasks, OfARoleThatEndsTheGenerationEndTheJobAndAreNamed) {
  ForkedJob job(task_job(kNever, {ps(), chief()}));
  const int pid = job.number_after("chief 0 serves as ");
  job.wait_for("found host", 2);
  ::kill(pid, SIGKILL);
  EXPECT_EQ(job.finish(), 138);
  EXPECT_THAT(job.complained, HasSubstr(fmt::format("trireme: chief 0 (pid {}, host ", pid)));
  EXPECT_THAT(job.complained, HasSubstr("[1] [membership] "));  // The worker saw it, and ended.
}

TEST(SupervisedTasks, ThatFallSilentAreKilledAndReplaced) {
  SupervisorOptions options = task_job(kWhenATaskIsBack, {ps()});
  options.heartbeat_timeout = Milliseconds(1000);
  ForkedJob job(options);
  const int pid = job.number_after("ps 0 serves as ");
  job.wait_for("found host", 2);
  ::kill(pid, SIGSTOP);
  EXPECT_EQ(job.finish(), 0);
  EXPECT_FALSE(tests::is_alive(pid));
  EXPECT_THAT(job.complained, HasSubstr(fmt::format("trireme: ps 0 (pid {}): ", pid)));
}

TEST(SupervisedTasks, ThatDieAgainAndAgainEndTheJob) {
  SupervisorOptions options = tests::shell_job(1, "sleep 60");
  options.roles = Roles({ps_that_runs("kill -9 $$")});
  ForkedJob job(options);
  EXPECT_EQ(job.finish(), 138);
  EXPECT_THAT(job.complained, HasSubstr("another process gets its task in 4"));
  EXPECT_THAT(job.complained, HasSubstr("ps 0 died 5 times in a row soon after its start"));
}

// A shell or a container ends with 137 when its process was killed.
TEST(SupervisedTasks, ThatEndWithACodeFrom128OnAreReplaced) {
  const std::string once = fmt::format("{}/once_{}", ::testing::TempDir(), ::getpid());
  SupervisorOptions options = tests::shell_job(1, "sleep 2");
  options.roles =
      Roles({ps_that_runs(fmt::format("mkdir {} 2>/dev/null && exit 137; sleep 60", once))});
  ForkedJob job(options);
  EXPECT_EQ(job.finish(), 0);
  std::filesystem::remove(once);
  EXPECT_THAT(job.complained, HasSubstr("was lost: exit code 137; another process gets its task"));
}

TEST(SupervisedTasks, ThatAreKilledAfterAllWorkersHaveEndedCostNothing) {
  SupervisorOptions options = tests::shell_job(1, "true");
  options.roles = Roles({ps_that_runs("trap 'kill -9 $$' TERM; while true; do sleep 0.05; done")});
  ForkedJob job(options);
  EXPECT_EQ(job.finish(), 0);
  EXPECT_THAT(job.complained, Not(HasSubstr("job ends with")));
}

TEST(SupervisedTasks, ThatFailForGoodAreNotReplaced) {
  SupervisorOptions options = tests::shell_job(1, "sleep 60");
  options.roles = Roles({ps_that_runs("exit 2")});
  ForkedJob job(options);
  EXPECT_EQ(job.finish(), 2);
  EXPECT_THAT(job.complained, HasSubstr("ps 0 (pid "));
  EXPECT_THAT(job.complained, HasSubstr("failed with exit code 2"));
}

TEST(SupervisedTasks, ThatAreReplacedOrToldDoNotEndTheJobHoweverTheyFail) {
  for (const char* script : {"kill -9 $$", "exit 2"}) {
    SupervisorOptions options = tests::shell_job(1, "sleep 10");
    Role role = ps_that_runs(script);
    role.on_loss = OnLoss::replace_or_tell;
    options.roles = Roles({role});
    ForkedJob job(options);
    EXPECT_EQ(job.finish(), 0) << script;
    EXPECT_THAT(job.complained, HasSubstr("the job continues without it"));
    const bool is_replaced =
        job.complained.find("another process gets its task") != std::string::npos;
    EXPECT_EQ(is_replaced, std::string(script).starts_with("kill"));
  }
}

TEST(SupervisedTasks, ThatStillStartDoTheirLastWorkIfTheyAreSureToJoin) {
  Role late = evaluator();
  late.always_joins = true;
  late.command = {"sh", "-c",
                  "sleep 1; exec " + std::filesystem::read_symlink("/proc/self/exe").string()};
  ForkedJob job(task_job(kAtOnce, {ps(), late}));
  EXPECT_EQ(job.finish(), 0);
  EXPECT_THAT(job.printed, HasSubstr("[evaluator 0] [======="));
}

TEST(SupervisedTasks, KnowTheirTaskFromTheEnvironment) {
  SupervisorOptions options = tests::shell_job(
      2,
      "echo $TRIREME_ROLE $TRIREME_INDEX of ${TRIREME_WORKERS:-no} as ${TRIREME_WORKER:-none}; "
      "test $TRIREME_ROLE != worker || sleep 1");
  options.roles = Roles({ps(2)});
  ForkedJob job(options);
  EXPECT_EQ(job.finish(), 0);
  for (const char* line : {"[0] worker 0 of 2 as 0\n", "[1] worker 1 of 2 as 1\n",
                           "[ps 0] ps 0 of 2 as none\n", "[ps 1] ps 1 of 2 as none\n"})
    EXPECT_THAT(job.printed, HasSubstr(line));
}

TEST(SupervisedTasks, AJobOfWorkersOnlyHasNoRoleInItsEnvironment) {
  ::setenv("TRIREME_ROLE", "ps", 1);  // As in a side task that starts a job of its own.
  ForkedJob job(tests::shell_job(1, "echo role ${TRIREME_ROLE:-none}"));
  ::unsetenv("TRIREME_ROLE");
  EXPECT_EQ(job.finish(), 0);
  EXPECT_THAT(job.printed, HasSubstr("[0] role none\n"));
}

const std::string kServe =
    "trap 'echo $TRIREME_ROLE ends; exit 0' TERM; echo ready; while :; do sleep 0.02; done";

TEST(SupervisedTasks, HaveTheTimeToEndThatAStopGives) {
  SupervisorOptions options = tests::shell_job(1, "sleep 0.3; exit 0");
  options.roles = Roles({ps_that_runs(kServe)});
  ForkedJob job(options);
  EXPECT_EQ(job.finish(), 0);
  EXPECT_THAT(job.printed, HasSubstr("[ps 0] ps ends\n"));
}

TEST(SupervisedTasks, AreAskedToStopWithTheJob) {
  SupervisorOptions options = tests::shell_job(1, kServe);
  options.roles = Roles({ps()});
  ForkedJob job(options);
  job.wait_for("ready", 2);
  job.signal(SIGTERM);
  EXPECT_EQ(job.finish(), 143);
  EXPECT_THAT(job.printed, HasSubstr("[ps 0] ps ends\n"));
}

TEST(SupervisedTasks, ThatIgnoreTheRequestAreKilledAfterTheGrace) {
  SupervisorOptions options = tests::shell_job(1, "sleep 0.3");
  Role stubborn = ps();
  stubborn.command = {"sh", "-c", "trap '' TERM; while :; do sleep 0.02; done"};
  options.roles = Roles({stubborn});
  options.stop_grace = Milliseconds(300);
  ForkedJob job(options);
  EXPECT_EQ(job.finish(), 0);
}

// A job of two launchers on this host, each with one worker.
struct TwoNodes {
  explicit TwoNodes(SupervisorOptions options) {
    options.nodes = 2;
    options.rendezvous = {"127.0.0.1", net::free_port()};
    const std::string token(64, '7');
    first.emplace(options, token);
    options.node = 1;
    second.emplace(options, token);
  }
  std::optional<ForkedJob> first, second;
};

TEST(SupervisedTasks, OnSeveralNodesServeUntilTheWorkersOfAllNodesHaveEnded) {
  SupervisorOptions options =
      tests::shell_job(2, "test $TRIREME_WORKER = 1 || sleep 2; echo worker has ended");
  options.roles = Roles({ps_that_runs(kServe, 2)});
  const auto began = std::chrono::steady_clock::now();
  TwoNodes job(options);
  EXPECT_EQ(job.second->finish(), 0);
  EXPECT_GE(std::chrono::steady_clock::now() - began, std::chrono::seconds(2));
  EXPECT_EQ(job.first->finish(), 0);
  EXPECT_THAT(job.first->printed, HasSubstr("[ps 0] ps ends\n"));
  EXPECT_THAT(job.second->printed, HasSubstr("[ps 1] ps ends\n"));
}

TEST(SupervisedTasks, ServeWhileWorkersOfOtherNodesSaveAfterARequestToStop) {
  // Worker 1 is the slow one, and its launcher watches for the job's end before it is ready.
  SupervisorOptions options = tests::shell_job(
      2,
      "test $TRIREME_WORKER = 0 && save=0 || { save=1.5; sleep 0.5; }; "
      "trap 'sleep $save; exit 143' TERM; echo ready; while :; do sleep 0.02; done");
  options.roles = Roles({ps_that_runs(kServe, 2)});
  TwoNodes job(options);
  job.first->wait_for("ready", 2);
  job.second->wait_for("ready", 2);
  const auto asked = std::chrono::steady_clock::now();
  job.first->signal(SIGTERM);
  job.second->signal(SIGTERM);
  EXPECT_EQ(job.first->finish(), 143);
  EXPECT_GE(std::chrono::steady_clock::now() - asked, std::chrono::milliseconds(1500));
  EXPECT_EQ(job.second->finish(), 143);
  EXPECT_THAT(job.first->printed, HasSubstr("[ps 0] ps ends\n"));
  EXPECT_THAT(job.second->printed, HasSubstr("[ps 1] ps ends\n"));
}

TEST(SupervisedTasks, AreStartedAgainAlsoWhenNoWorkerOfTheirNodeLives) {
  const std::string deaths = fmt::format("{}/deaths_{}", ::testing::TempDir(), ::getpid());
  std::filesystem::remove(deaths);
  SupervisorOptions options = tests::shell_job(2, "test $TRIREME_WORKER = 1 || sleep 3");
  // After the second death of ps 1 its next process waits 1 s.
  const std::string die_twice = fmt::format(
      "if [ $TRIREME_INDEX = 1 ] && [ $(cat {0} 2>/dev/null | wc -l) -lt 2 ]; then "
      "echo once more >> {0}; sleep 0.3; kill -9 $$; fi; ",
      deaths);
  options.roles = Roles({ps_that_runs(die_twice + kServe, 2)});
  TwoNodes job(options);
  EXPECT_EQ(job.second->finish(), 0);
  EXPECT_EQ(job.first->finish(), 0);
  EXPECT_THAT(job.second->complained, HasSubstr("another process gets its task in 1"));
  EXPECT_THAT(job.second->printed, HasSubstr("[ps 1] ps ends\n"));
  std::filesystem::remove(deaths);
}

// The task's own launcher does not see that it was silent.
TEST(SupervisedTasks, ThatTheCoordinatorOfAnotherNodeHasLostAreReplaced) {
  SupervisorOptions options = task_job(kWhenATaskIsBack, {ps(2)});
  options.heartbeat_timeout = Milliseconds(1000);
  TwoNodes job(options);
  const int pid = job.second->number_after("ps 1 serves as ");
  job.first->wait_for("found host");
  job.second->wait_for("found host");
  job.second->wait_for("ps 1 has told its address");
  ::kill(pid, SIGSTOP);
  job.first->wait_for("told of ps 1");
  ::kill(pid, SIGCONT);
  EXPECT_EQ(job.second->finish(), 0);
  EXPECT_EQ(job.first->finish(), 0);
  EXPECT_THAT(job.second->complained,
              HasSubstr(fmt::format("ps 1 (pid {}) was lost: exit code 138; another process gets "
                                    "its task",
                                    pid)));
  EXPECT_THAT(job.first->printed, HasSubstr("found again host"));
}

TEST(SupervisedTasks, OfAnElasticJobEndAfterItsWorkers) {
  SupervisorOptions options = tests::shell_job(2, "sleep 0.3");
  options.elastic = membership::Elastic{.minimum = 1, .maximum = 2};
  Role serving = ps();
  serving.command = {"sh", "-c", kServe};
  options.roles = Roles({serving});
  ForkedJob job(options);
  EXPECT_EQ(job.finish(), 0);
  EXPECT_THAT(job.printed, HasSubstr("[ps 0] ps ends\n"));
}

}  // namespace
}  // namespace trireme::launch::supervised_tasks_test
