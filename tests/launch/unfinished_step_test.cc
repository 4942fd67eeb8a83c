// Elastic jobs of real processes that crash: in the same step each time, or in a later step each
// time. This test programme is also the workers' programme.
#include <gmock/gmock.h>

#include <trireme/base/environment.h>
#include <trireme/membership/arrival.h>
#include <trireme/membership/coordinator.h>
#include <trireme/membership/identity.h>
#include <trireme/membership/member.h>
#include <csignal>
#include <cstdlib>
#include <memory>
#include <string>

#include "forked_job.h"

namespace trireme::launch::unfinished_step_test {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using tests::ForkedJob;

constexpr int64_t kSteps = 40;
constexpr int64_t kPoisoned = 7;
constexpr Milliseconds kPatience{20000};

// The crash of a job: which worker crashes, in which step and how.
struct Crash {
  char which = '0';  // 0: worker 0. 1: worker 1. g: another worker in each generation.
  // True: each generation crashes in step 7. False: each generation crashes in another step.
  bool always_there = 1;
  int signal = SIGKILL;
  std::string text() const {
    return std::string{which, always_there ? 'y' : 'n'} + std::to_string(signal);
  }
  static Crash parse(const std::string& text) {
    return {text.at(0), text.at(1) == 'y', std::stoi(text.substr(2))};
  }
  bool strikes(const membership::Arrival::Place& place, int64_t step) const {
    if (step != (always_there ? kPoisoned : 3 * (place.generation + 1))) return false;
    return place.worker == (which == 'g' ? place.generation % place.workers : which - '0');
  }
};

class ElasticWorker {
 public:
  ElasticWorker(const membership::Identity& identity, const Crash& crash)
      : identity_(identity), crash_(crash), coordinator_(*identity.rendezvous) {}

  // Returns its exit code.
  int run() {
    while (step_ < kSteps) {
      try {
        if (!live_through_a_generation()) return kExitOk;
      } catch (const membership::NoGeneration&) {
        throw;
      } catch (const Error& error) {
        reason_ = brief(error);
      }
    }
    member_->leave();
    return kExitOk;
  }

 private:
  // Returns false if the job does not need this process.
  bool live_through_a_generation() {
    auto next = std::make_unique<membership::Arrival>(
        coordinator_, *identity_.token,
        membership::Arrival::Newcomer{identity_.elastic->process, step_,
                                      std::exchange(reason_, {}),
                                      [this](const auto&) { return standby_.endpoint(); }},
        former_, Deadline::after(kPatience));
    member_.reset();
    arrival_ = std::move(next);
    const auto place = arrival_->wait(Deadline::after(kPatience));
    if (!place) return false;
    former_ = place->former;
    member_ = std::make_unique<membership::Member>(
        arrival_->coordinator(), *identity_.token, place->worker, place->workers,
        place->generation, std::map<std::string, std::string>{},
        membership::MemberOptions{
            .timeout = kPatience, .heartbeat_interval = Milliseconds(20), .phases = phases_});
    take_state(place->worker);
    while (step_ < kSteps) {
      phases_->set(Phase::backward, step_ + 1);
      if (crash_.strikes(*place, step_ + 1)) {
        ::signal(crash_.signal, SIG_DFL);  // Sanitizers have handlers.
        ::raise(crash_.signal);
      }
      member_->barrier(std::to_string(step_));
      ++step_;
      if (!member_->regroup_wanted()) continue;
      reason_ = "asked to";
      return true;
    }
    return true;
  }
  void take_state(int worker) {
    if (worker > 0)
      step_ = std::stoll(member_->get("step", Deadline::after(kPatience)));
    else
      member_->set("step", std::to_string(step_ = std::max<int64_t>(step_, 0)));
  }

  const membership::Identity identity_;
  const Crash crash_;
  const net::Endpoint coordinator_;
  const std::shared_ptr<watch::PhasePage> phases_ = watch::PhasePage::of_this_process();
  membership::Coordinator standby_{{"127.0.0.1", 0}, *identity_.token};
  std::unique_ptr<membership::Arrival> arrival_;
  std::unique_ptr<membership::Member> member_;
  std::optional<membership::Former> former_;
  int64_t step_ = -1;
  std::string reason_;
};

// Runs before any test: this process may be a worker that a test below has started.
class BecomeElasticWorker : public ::testing::Environment {
  void SetUp() override {
    const char* crash = std::getenv("TRIREME_TEST_CRASH");
    if (!crash) return;
    try {
      const membership::Identity identity =
          membership::resolve_identity(trireme::Environment::of_process());
      ::_exit(ElasticWorker(identity, Crash::parse(crash)).run());
    } catch (const Error& error) {
      ::dprintf(STDERR_FILENO, "%s\n", error.what());
      ::_exit(exit_code_of(error));
    }
  }
};
[[maybe_unused]] const auto* const become_elastic_worker =
    ::testing::AddGlobalTestEnvironment(new BecomeElasticWorker);

struct Ended {
  int code;
  std::string complained;
};

Ended run(const Crash& crash, int minimum, int workers) {
  SupervisorOptions options;
  options.workers = workers;
  options.elastic = membership::Elastic{.minimum = minimum, .maximum = workers};
  options.command = {"/proc/self/exe"};
  options.environment = {{"TRIREME_TEST_CRASH", crash.text()}};
  ForkedJob job(options);
  const int code = job.finish();
  return {code, job.complained};
}

void expect_an_end_at_the_step(const Ended& job, const std::string& cause) {
  EXPECT_EQ(job.code, kExitFailed) << job.complained;
  EXPECT_THAT(job.complained, HasSubstr("step 7 is never finished"));
  EXPECT_THAT(job.complained, HasSubstr(" in backward of step 7: killed by signal " + cause));
  EXPECT_THAT(job.complained, HasSubstr("job ends with 1"));
}

TEST(UnfinishedStep, OneWorkerThatAlwaysCrashesThereEndsTheJob) {
  const Ended job = run({.which = '1', .signal = SIGSEGV}, 2, 2);
  expect_an_end_at_the_step(job, "11 (SIGSEGV)");
  EXPECT_THAT(job.complained, HasSubstr("worker 1 in backward of step 7"));
}

TEST(UnfinishedStep, AllWorkersThatCrashThereOneAfterTheOtherEndTheJob) {
  expect_an_end_at_the_step(run({.which = '0', .signal = SIGABRT}, 1, 3), "6 (SIGABRT)");
}

TEST(UnfinishedStep, TheJobEndsWhicheverRankHasTheData) {
  expect_an_end_at_the_step(run({.which = 'g', .signal = SIGKILL}, 1, 2), "9 (SIGKILL)");
  expect_an_end_at_the_step(run({.which = 'g', .signal = SIGKILL}, 3, 3), "9 (SIGKILL)");
}

TEST(UnfinishedStep, WorkersThatDieInDifferentStepsDoNotEndTheJob) {
  const Ended job = run({.which = 'g', .always_there = false, .signal = SIGKILL}, 2, 2);
  EXPECT_EQ(job.code, kExitOk) << job.complained;
  EXPECT_THAT(job.complained, Not(HasSubstr("is never finished")));
}

}  // namespace
}  // namespace trireme::launch::unfinished_step_test
