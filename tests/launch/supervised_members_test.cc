// Workers that join: the supervisor learns from the coordinator what they do. This test programme
// is also the workers' programme.
#include <gmock/gmock.h>

#include <trireme/base/environment.h>
#include <trireme/launch/supervisor.h>
#include <trireme/membership/identity.h>
#include <trireme/membership/member.h>
#include <csignal>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>

#include "forked_job.h"

namespace trireme::launch::supervised_members_test {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using tests::ForkedJob;

// The part that a worker plays after all have joined, given for each worker number.
enum class Role {
  leave,
  wait_until_lost,
  return_without_goodbye,
  crash_in_step_forty,
  crash_in_step_zero,
  save_for_a_while
};

constexpr Milliseconds kSlowSave{2500};  // It takes longer than the end of the others.

void say_line(const std::string& line) {
  const std::string text = line + "\n";
  [[maybe_unused]] const auto written = ::write(STDOUT_FILENO, text.data(), text.size());
}

int run_worker(const membership::Identity& identity, Role role) {
  membership::Member member(*identity.rendezvous, *identity.token, identity.worker,
                            identity.workers, identity.generation, {},
                            {.timeout = Milliseconds(8000),
                             .heartbeat_interval = Milliseconds(20),
                             .phases = watch::PhasePage::of_this_process()});
  member.phases().set(Phase::backward, role == Role::crash_in_step_zero ? 0 : 40);
  // A launcher on another node needs the heartbeat, which has no answer. Fifteen intervals are
  // enough for it.
  std::this_thread::sleep_for(Milliseconds(300));
  member.barrier("all have told their phase");
  say_line("joined" + std::to_string(identity.worker) + " " + std::to_string(::getpid()));
  switch (role) {
    case Role::leave: member.leave(); return 0;
    case Role::return_without_goodbye: ::_exit(0);
    case Role::crash_in_step_forty:
    case Role::crash_in_step_zero:
      ::signal(SIGSEGV, SIG_DFL);  // Sanitizers have a handler of their own.
      ::raise(SIGSEGV);
      return 0;
    case Role::wait_until_lost: break;
    case Role::save_for_a_while:  // The disk is slow: the others end during the save.
      ::signal(SIGTERM, SIG_IGN);
      member.phases().begin_save(40);
      say_line("saving");
      tests::becomes_true([&] { return member.is_lost(); });
      std::this_thread::sleep_for(kSlowSave);
      member.phases().end_save();
      say_line("saved");
      break;
  }
  tests::becomes_true([&] { return member.is_lost(); });
  member.throw_if_lost();
  return 0;
}

// Runs before any test: this process may be a worker that a test below has started.
class BecomeWorker : public ::testing::Environment {
  void SetUp() override {
    const char* roles = std::getenv("TRIREME_TEST_ROLES");
    if (!roles) return;
    try {
      const membership::Identity identity =
          membership::resolve_identity(trireme::Environment::of_process());
      ::_exit(run_worker(identity, static_cast<Role>(roles[identity.worker] - '0')));
    } catch (const Error& error) {
      ::dprintf(STDERR_FILENO, "%s\n", error.what());
      ::_exit(exit_code_of(error));
    }
  }
};
[[maybe_unused]] const auto* const become_worker =
    ::testing::AddGlobalTestEnvironment(new BecomeWorker);

SupervisorOptions member_job(const std::vector<Role>& roles) {
  std::string digits;
  for (const Role role : roles) digits.push_back(static_cast<char>('0' + static_cast<int>(role)));
  SupervisorOptions options;
  options.workers = static_cast<int>(roles.size());
  options.command = {"/proc/self/exe"};
  options.environment = {{"TRIREME_TEST_ROLES", digits}};
  options.loss_grace = Milliseconds(3000);  // Enough for the others to end by themselves.
  return options;
}

TEST(SupervisedMembers, ThatSayGoodbyeEndTheJobWell) {
  ForkedJob job(member_job({Role::leave, Role::leave, Role::leave}));
  EXPECT_EQ(job.finish(), 0);
  EXPECT_THAT(job.complained, Not(HasSubstr("job ends with")));
}

TEST(SupervisedMembers, AreNamedWithTheirPhaseWhenTheyAreKilled) {
  ForkedJob job(member_job({Role::wait_until_lost, Role::wait_until_lost, Role::wait_until_lost}));
  const int pid = job.number_after("joined1 ");
  job.wait_for("joined", 3);
  ::kill(pid, SIGKILL);
  EXPECT_EQ(job.finish(), 138);
  EXPECT_THAT(job.complained,
              HasSubstr("trireme: worker 1 (pid " + std::to_string(pid) + ", host "));
  EXPECT_THAT(
      job.complained,
      AllOf(HasSubstr(
                "was killed by signal 9 (SIGKILL) in backward of step 40 (it had been there for "),
            HasSubstr("); job ends with 138")));
  // The others saw the lost worker too, and ended by themselves.
  EXPECT_THAT(job.complained, HasSubstr("[0] [membership]"));
  EXPECT_THAT(job.complained, HasSubstr("[2] [membership]"));
}

TEST(SupervisedMembers, CanBeTriedAgainAfterACrashInALaterStep) {
  ForkedJob job(member_job({Role::crash_in_step_forty, Role::wait_until_lost}));
  EXPECT_EQ(job.finish(), 138);
  EXPECT_THAT(job.complained, HasSubstr("worker 0"));
  EXPECT_THAT(job.complained, HasSubstr("SIGSEGV"));
}

TEST(SupervisedMembers, FailForGoodByACrashInTheFirstStep) {
  SupervisorOptions options = member_job({Role::crash_in_step_zero, Role::crash_in_step_zero});
  ForkedJob job(options);
  EXPECT_EQ(job.finish(), 1);
  EXPECT_THAT(job.complained, HasSubstr("before the first step was finished"));
}

TEST(SupervisedMembers, AreLostWithoutAGoodbye) {
  ForkedJob job(member_job({Role::return_without_goodbye, Role::wait_until_lost}));
  EXPECT_EQ(job.finish(), 1);
  EXPECT_THAT(job.complained, HasSubstr("trireme: worker 0"));
  EXPECT_THAT(job.complained, HasSubstr("without saying goodbye"));
}

TEST(SupervisedMembers, AreLostWhenTheyFallSilent) {
  SupervisorOptions options = member_job({Role::wait_until_lost, Role::wait_until_lost});
  options.heartbeat_timeout = Milliseconds(1000);
  options.loss_grace = Milliseconds(300);
  ForkedJob job(options);
  const int pid = job.number_after("joined0 ");
  job.wait_for("joined", 2);
  ::kill(pid, SIGSTOP);
  EXPECT_EQ(job.finish(), 138);
  EXPECT_THAT(job.complained,
              HasSubstr("trireme: worker 0 (pid " + std::to_string(pid) + ", host "));
  EXPECT_THAT(job.complained, HasSubstr("was lost in backward of step 40: silent for "));
  EXPECT_FALSE(tests::is_alive(pid));
}

TEST(SupervisedMembers, FinishASaveAfterAWorkerWasLostIfThereIsTime) {
  for (const bool has_time : {true, false}) {
    SupervisorOptions options = member_job({Role::save_for_a_while, Role::wait_until_lost});
    options.loss_grace = Milliseconds(100);
    options.stop_grace = Milliseconds(has_time ? 60000 : 200);
    ForkedJob job(options);
    job.wait_for("saving");
    ::kill(job.number_after("joined1 "), SIGKILL);
    EXPECT_EQ(job.finish(), 138);
    const auto saved = HasSubstr("[0] saved");
    const auto cut_off =
        HasSubstr("the checkpoint of step 40 was cut off while worker 0 wrote it");
    if (has_time) {
      EXPECT_THAT(job.printed, saved);
      EXPECT_THAT(job.complained, Not(cut_off));
    } else {
      EXPECT_THAT(job.printed, Not(saved));
      EXPECT_THAT(job.complained, cut_off);
    }
  }
}

TEST(SupervisedMembers, OnAnotherNodeAreNamedToo) {
  const std::string token(64, '7');
  SupervisorOptions first = member_job({Role::wait_until_lost, Role::wait_until_lost});
  first.nodes = 2;
  first.rendezvous = {"127.0.0.1", net::free_port()};
  SupervisorOptions second = first;
  second.node = 1;
  ForkedJob first_job(first, token);
  ForkedJob second_job(second, token);
  const int pid = second_job.number_after("joined1 ");
  first_job.wait_for("joined0 ");
  ::kill(pid, SIGKILL);
  EXPECT_EQ(second_job.finish(), 138);
  EXPECT_THAT(second_job.complained, HasSubstr("killed by signal 9 (SIGKILL)"));
  EXPECT_EQ(first_job.finish(), 138);
  EXPECT_THAT(first_job.complained, HasSubstr("trireme: worker 1 (pid " + std::to_string(pid)));
  EXPECT_THAT(first_job.complained,
              HasSubstr("was lost in backward of step 40: connection closed"));
}

}  // namespace
}  // namespace trireme::launch::supervised_members_test
