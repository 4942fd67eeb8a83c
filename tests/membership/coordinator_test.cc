#include "job.h"

#include <gmock/gmock.h>
#include <trireme/membership/protocol.h>
#include <atomic>
#include <future>

namespace trireme::membership::coordinator_test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

TEST(Coordinator, ListensWhereItWasTold) {
  const Coordinator coordinator(kAnyPort, kToken, options_for(2));
  EXPECT_EQ(coordinator.endpoint().host, "127.0.0.1");
  EXPECT_GT(coordinator.endpoint().port, 0);
  const Error error =
      error_of([&] { Coordinator(coordinator.endpoint(), kToken, options_for(2)); });
  EXPECT_EQ(error.code(), ErrorCode::io);
  EXPECT_THAT(error.what(), HasSubstr(coordinator.endpoint().describe()));
}

TEST(Coordinator, AJobOfNoWorkersIsRefused) {
  EXPECT_EQ(error_of([] { Coordinator(kAnyPort, kToken, options_for(0)); }).code(),
            ErrorCode::invalid_argument);
}

TEST(Coordinator, KnowsThePhaseOfEachWorker) {
  TestJob job(2);
  job.join_all();
  EXPECT_FALSE(job.coordinator.any_step_finished());
  job[1].phases().set(Phase::exchange, 7);
  EXPECT_TRUE(eventually(
      [&] { return job.coordinator.last_phase(1).describe() == "exchange of step 7"; }));
  EXPECT_TRUE(job.coordinator.any_step_finished());
  EXPECT_EQ(job.coordinator.last_phase(0).step, -1);
}

TEST(Coordinator, TellsOthersOfALostWorkerThatTheSupervisorReports) {
  TestJob job(3);
  job.join_all();
  job.coordinator.report_lost(1, "killed by signal 9 (SIGKILL)");
  for (const int other : {0, 2}) {
    ASSERT_TRUE(eventually([&] { return job[other].is_lost(); }));
    EXPECT_THAT(job[other].lost()->describe(),
                AllOf(HasSubstr("worker 1 (host "), HasSubstr("killed by signal 9 (SIGKILL)")));
  }
  EXPECT_EQ(job.coordinator.first_lost()->worker, 1);
}

TEST(Coordinator, EndsTheJoinOfOthersWhenAWorkerDiedBeforeItsOwn) {
  TestJob job(2);
  std::thread joining([&] {
    const Error error = error_of([&] { job.join(0); });
    EXPECT_EQ(error.code(), ErrorCode::peer_lost);
    EXPECT_THAT(error.what(), AllOf(HasSubstr("worker 1"), HasSubstr("exited with code 1")));
  });
  job.coordinator.report_lost(1, "exited with code 1");
  joining.join();
}

TEST(Coordinator, CallsAStoppedWorkerSilent) {
  Coordinator coordinator(kAnyPort, kToken,
                          {.workers = 2, .heartbeat_timeout = Milliseconds(300), .generation = 5});
  std::unique_ptr<Member> quiet, lively;
  std::thread other([&] {
    quiet = std::make_unique<Member>(coordinator.endpoint(), kToken, 1, 2, 5,
                                     std::map<std::string, std::string>{},
                                     MemberOptions{.heartbeat_interval = Milliseconds(60000)});
  });
  lively = std::make_unique<Member>(coordinator.endpoint(), kToken, 0, 2, 5,
                                    std::map<std::string, std::string>{},
                                    MemberOptions{.heartbeat_interval = Milliseconds(20)});
  other.join();
  ASSERT_TRUE(eventually([&] { return lively->is_lost() && quiet->is_lost(); }));
  EXPECT_EQ(lively->lost()->worker, 1);
  EXPECT_THAT(lively->lost()->reason, HasSubstr("silent for"));
  EXPECT_EQ(quiet->lost()->worker, 1);
}

TEST(Coordinator, MayBeDestroyedWhileWorkersSpeak) {
  for (int round = 0; round < 20; ++round) {
    auto coordinator = std::make_unique<Coordinator>(kAnyPort, kToken, options_for(2));
    std::atomic<int> calls{0};
    std::thread ending([&] {
      EXPECT_TRUE(eventually([&] { return calls > 20; }));
      coordinator.reset();
    });
    const net::Endpoint endpoint = coordinator->endpoint();
    on_each(2, [&](int worker) {
      Member member(endpoint, kToken, worker, 2, 5, {},
                    {.timeout = Milliseconds(10000), .heartbeat_interval = Milliseconds(1)});
      const Error error = error_of([&] {
        for (;; ++calls) member.add("n", 1);
      });
      EXPECT_EQ(error.code(), ErrorCode::peer_lost);
    });
    ending.join();
  }
}

// A worker of another programme, or a damaged one: it holds the token but not the protocol.
class CoordinatorWithOddClient : public testing::Test {
 protected:
  std::string ending(Json message, net::Purpose purpose = net::Purpose::worker) {
    std::promise<std::string> ended;
    net::ControlClient client(
        job.coordinator.endpoint(), kToken,
        {.received = {}, .closed = [&](const std::string& reason) { ended.set_value(reason); }},
        soon(), {.purpose = purpose});
    client.send(std::move(message));
    auto reason = ended.get_future();
    if (reason.wait_until(soon().at()) != std::future_status::ready) return "nothing";
    return reason.get();
  }
  void TearDown() override {
    job.join_all();
    on_each(2, [&](int worker) { job[worker].barrier("the job continues"); });
  }
  TestJob job{2};
};

TEST_F(CoordinatorWithOddClient, ASenderThatHasNotJoinedIsCutOff) {
  EXPECT_THAT(ending({{"op", "set"}, {"generation", 5}, {"id", 1}, {"key", "k"}}),
              HasSubstr("connection"));
}

TEST_F(CoordinatorWithOddClient, AJoinWithoutAWorkerNumberCutsItsSenderOff) {
  EXPECT_THAT(ending({{"op", "join"}, {"generation", 5}}), HasSubstr("connection"));
}

TEST_F(CoordinatorWithOddClient, AMessageThatItsPurposeDoesNotCoverCutsItsSenderOff) {
  const Json join{
      {"op", "join"}, {"generation", 0}, {"worker", 0},     {"workers", 2},
      {"host", "h"},  {"pid", 1},        {"timeout_ms", 5}, {"must_agree", Json::object()}};
  for (const net::Purpose purpose :
       {net::Purpose::scale, net::Purpose::arrival, net::Purpose::probe})
    EXPECT_THAT(ending(join, purpose), HasSubstr("connection"));
  EXPECT_THAT(ending({{"op", "resize"}, {"generation", -1}, {"target", 2}}),
              HasSubstr("connection"));
  EXPECT_THAT(ending({{"op", "arrive"}, {"generation", -1}}), HasSubstr("connection"));
}

TEST_F(CoordinatorWithOddClient, AMessageWithoutOperationCutsItsSenderOff) {
  EXPECT_THAT(ending(Json::object()), HasSubstr("connection"));
}

TEST_F(CoordinatorWithOddClient, ARefusedWorkerIsToldAndCutOff) {
  EXPECT_THAT(ending({{"op", "join"},
                      {"generation", 5},
                      {"worker", 9},
                      {"workers", 2},
                      {"host", "x"},
                      {"pid", 1},
                      {"must_agree", Json::object()},
                      {"timeout_ms", 1000}}),
              HasSubstr("connection"));
}

}  // namespace
}  // namespace trireme::membership::coordinator_test
