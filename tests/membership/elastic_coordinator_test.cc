#include <fmt/format.h>
#include <gmock/gmock.h>
#include <trireme/membership/arrival.h>
#include <array>
#include <thread>

#include "../net/silent_port.h"
#include "standing.h"

namespace trireme::membership::elastic_coordinator_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

const net::Endpoint kNowhere{"127.0.0.1", 1};  // Nothing listens there.

// The arrival of a process that has no state yet.
Arrival arrive(const Coordinator& coordinator, int64_t process) {
  return {coordinator.endpoint(),
          kToken,
          {process, -1, "", [](const std::string&) { return kNowhere; }},
          {},
          soon()};
}

struct ElasticJob {
  // Two workers are wanted; the first generation forms with one.
  ElasticJob()
      : coordinator(
            kAnyPort, kToken, {.workers = 2},
            RosterOptions{
                .minimum = 1, .maximum = 2, .target = 2, .first_timeout = Milliseconds(20)}) {}
  std::unique_ptr<Member> join(const Arrival::Place& place) {
    return std::make_unique<Member>(
        coordinator.endpoint(), kToken, place.worker, place.workers, place.generation,
        std::map<std::string, std::string>{},
        MemberOptions{.timeout = Milliseconds(10000), .heartbeat_interval = Milliseconds(20)});
  }
  Coordinator coordinator;
};

TEST(ElasticCoordinator, PlacesAProcessThatArrives) {
  ElasticJob job;
  Arrival arrival = arrive(job.coordinator, 7);
  const auto place = arrival.wait(soon());
  ASSERT_TRUE(place);
  EXPECT_EQ(place->workers, 1);
  EXPECT_EQ(place->cause, "start");
  EXPECT_EQ(place->worker, 0);
}

TEST(ElasticCoordinator, AWorkerThatJoinsAfterTheOthersWereAskedToRegroupIsAskedToo) {
  ElasticJob job;
  Arrival arrival = arrive(job.coordinator, 0);
  const auto place = arrival.wait(soon());
  ASSERT_TRUE(place);
  // The newcomer comes before any worker has joined that could be asked to regroup.
  const Arrival newcomer = arrive(job.coordinator, 1);
  const auto member = job.join(*place);
  EXPECT_TRUE(eventually([&] { return member->regroup_wanted(); }));
}

TEST(ElasticCoordinator, IgnoresHeartbeatsOfTheGenerationBefore) {
  ElasticJob job;
  Arrival arrival = arrive(job.coordinator, 0);
  const auto place = arrival.wait(soon());
  ASSERT_TRUE(place);
  const auto member = job.join(*place);
  testing::internal::CaptureStderr();
  Arrival newcomer = arrive(job.coordinator, 1), again = arrive(job.coordinator, 0);
  const auto next = again.wait(soon());
  std::this_thread::sleep_for(std::chrono::milliseconds(100));  // Five heartbeats.
  const std::string printed = testing::internal::GetCapturedStderr();
  ASSERT_TRUE(next);
  EXPECT_EQ(next->generation, 1);
  EXPECT_EQ(printed, "");
}

TEST(ElasticCoordinator, ReportsAProcessThatWasLostWhileItWaited) {
  ElasticJob job;
  Arrival arrival = arrive(job.coordinator, 0);
  const auto place = arrival.wait(soon());
  ASSERT_TRUE(place);
  const auto member = job.join(*place);
  { const Arrival newcomer = arrive(job.coordinator, 1); }
  std::vector<LostProcess> lost;
  EXPECT_TRUE(eventually([&] {
    for (const LostProcess& each : job.coordinator.take_lost()) lost.push_back(each);
    return !lost.empty();
  }));
  EXPECT_EQ(lost[0].process, 1);
  EXPECT_THAT(lost[0].text, HasSubstr("while it waited"));
}

TEST(ElasticCoordinator, AProcessThatDiesBeforeItHasJoinedIsLostAtOnce) {
  ElasticJob job;
  std::unique_ptr<Arrival> first(new Arrival(arrive(job.coordinator, 0)));
  ASSERT_TRUE(first->wait(soon()));
  first.reset();
  Arrival second = arrive(job.coordinator, 1);
  const auto place = second.wait(soon());
  ASSERT_TRUE(place);
  EXPECT_EQ(place->generation, 1);
  EXPECT_EQ(place->workers, 1);
  EXPECT_THAT(place->cause, HasSubstr("before it joined"));
}

TEST(ElasticCoordinator, RefusesAWorkerThatJoinsBeforeTheFirstGeneration) {
  ElasticJob job;
  for (const int generation : {-1, 0, 1}) {
    const Error error = error_of([&] { job.join({.generation = generation, .workers = 2}); });
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    EXPECT_THAT(error.what(), HasSubstr(fmt::format("generation {}", generation)));
  }
  Arrival arrival = arrive(job.coordinator, 0);
  const auto place = arrival.wait(soon());
  ASSERT_TRUE(place);
  EXPECT_TRUE(job.join(*place));
}

struct JobThatNeedsTwo {
  Coordinator coordinator{kAnyPort,
                          kToken,
                          {.workers = 2},
                          RosterOptions{.minimum = 2,
                                        .maximum = 2,
                                        .target = 2,
                                        .first_timeout = Milliseconds(100),
                                        .refill_timeout = Milliseconds(100)}};
  // Well below the time after which a member counts as silent.
  bool all_left_soon() const {
    return coordinator.wait_until_all_left(Deadline::after(Milliseconds(3000)));
  }
};

TEST(ElasticCoordinator, DoesNotWaitForAProcessThatWaitedWhenTheJobFailed) {
  const JobThatNeedsTwo job;
  {
    Arrival arrival = arrive(job.coordinator, 0);
    EXPECT_THAT(error_of([&] { arrival.wait(soon()); }).what(), HasSubstr("1 of at least 2"));
  }
  EXPECT_TRUE(job.coordinator.failure());
  EXPECT_TRUE(job.all_left_soon());
}

TEST(ElasticCoordinator, DoesNotWaitForAMemberThatWaitedWhenTheJobFailed) {
  const JobThatNeedsTwo job;
  std::array<std::unique_ptr<Member>, 2> members;
  on_each(2, [&](int worker) {
    Arrival arrival = arrive(job.coordinator, worker);
    const auto place = arrival.wait(soon());
    const auto member = static_cast<size_t>(place->worker);
    members[member] = std::make_unique<Member>(job.coordinator.endpoint(), kToken, place->worker,
                                               2, 0, std::map<std::string, std::string>{});
  });
  {
    Arrival again = arrive(job.coordinator, 0);
    for (auto& member : members) member.reset();  // Worker 1 is lost.
    EXPECT_THAT(error_of([&] { again.wait(soon()); }).what(), HasSubstr("1 of at least 2"));
  }
  EXPECT_TRUE(job.all_left_soon());
}

struct JobOfThree {
  explicit JobOfThree(int nodes = 1)
      : first(std::make_unique<Coordinator>(kAnyPort, kToken, MembershipOptions{.workers = 3},
                                            RosterOptions{.minimum = 1,
                                                          .maximum = 3,
                                                          .target = 3,
                                                          .regroup_timeout = Milliseconds(300),
                                                          .refill_timeout = Milliseconds(300),
                                                          .nodes = nodes})) {
    for (Standing& each : processes) each.coordinator = first->endpoint();
    for (Standing& each : processes) each.arrive(-1);
    for (Standing& each : processes) EXPECT_EQ(each.place().generation, 0);
  }
  std::unique_ptr<Coordinator> first;
  std::array<Standing, 3> processes{Standing(10), Standing(11), Standing(12)};
};

TEST(ElasticCoordinator, JoiningEndsSoonWhenTheCoordinatorDiedAfterItToldThePlace) {
  JobOfThree job;
  Standing& one = job.processes[0];
  job.first.reset();
  const Error error = error_of([&] {
    const Member member(one.coordinator, kToken, 0, 3, 0, {},
                        {.timeout = Milliseconds(60000),
                         .throw_if_hopeless = [&] { one.arrival->throw_if_closed(); }});
  });
  EXPECT_EQ(error.code(), ErrorCode::peer_lost);
  EXPECT_THAT(error.what(), HasSubstr("joining the next generation: the coordinator at"));
}

TEST(Standby, TakesOverWhenTheCoordinatorIsLost) {
  JobOfThree job;
  job.first.reset();
  for (Standing& each : job.processes) each.arrive(4);
  for (int worker = 0; Standing & each : job.processes) {
    const Arrival::Place place = each.place();
    EXPECT_EQ(place.generation, 1);
    EXPECT_EQ(place.worker, worker++);
    EXPECT_EQ(place.workers, 3);
    EXPECT_EQ(place.step, 4);
    EXPECT_THAT(place.cause, HasSubstr("coordinator"));
    EXPECT_EQ(each.coordinator.port, job.processes[0].standby->endpoint().port);
    EXPECT_EQ(place.former.history.size(), 2U);
  }
  EXPECT_TRUE(job.processes[0].standby->has_taken_over());
  EXPECT_FALSE(job.processes[1].standby->has_taken_over());
}

TEST(Standby, TheNextOneTakesOverIfThatIsLostToo) {
  JobOfThree job;
  job.first.reset();
  job.processes[0].standby.reset();  // It was killed too.
  for (const int survivor : {1, 2}) job.processes[static_cast<size_t>(survivor)].arrive(survivor);
  EXPECT_EQ(job.processes[2].place().worker, 0);  // This process has the newer state.
  const Arrival::Place place = job.processes[1].place();
  EXPECT_EQ(place.worker, 1);
  EXPECT_EQ(place.former.history.back()["lost_ranks"], Json::array({0}));
  EXPECT_EQ(job.processes[1].coordinator.port, job.processes[1].standby->endpoint().port);

  job.processes[1].standby.reset();  // The second coordinator is lost too.
  job.processes[2].arrive(3);
  EXPECT_EQ(job.processes[2].place().generation, 2);
}

TEST(Standby, DoesNotTakeOverFromACoordinatorThatMayLive) {
  JobOfThree job;
  const net::SilentPort silent;  // It acts like a stopped launcher.
  Standing& one = job.processes[2];
  one.coordinator = silent.endpoint();
  const Error error = error_of([&] { one.arrive(4, Deadline::after(Milliseconds(300))); });
  EXPECT_EQ(error.code(), ErrorCode::timeout);
  EXPECT_THAT(error.what(), HasSubstr("neither the coordinator at"));
  for (const Standing& each : job.processes) EXPECT_FALSE(each.standby->has_taken_over());
}

TEST(Standby, TheJobEndsWhenAMemberNeitherComesNorEnds) {
  JobOfThree job;
  job.first.reset();
  job.processes[0].arrive(4);
  job.processes[1].arrive(4);
  EXPECT_THAT(std::string(error_of([&] { job.processes[0].place(); }).what()),
              HasSubstr("neither came nor ended"));
}

// All members must choose the same process: they wait for a worker that is only slow to answer.
TEST(Standby, MembersGoToTheFirstThatIsNotGone) {
  JobOfThree job;
  job.first.reset();
  const net::SilentPort silent;
  Standing& last = job.processes[2];
  last.former->members[0].standby = silent.endpoint();
  EXPECT_EQ(error_of([&] { last.arrive(4, Deadline::after(Milliseconds(300))); }).code(),
            ErrorCode::timeout);
  EXPECT_FALSE(job.processes[1].standby->has_taken_over());
}

TEST(Standby, OnSeveralNodesNoProcessTakesOverWithoutEtcd) {
  JobOfThree job(/*nodes=*/2);
  job.first.reset();
  const auto error = error_of([&] { job.processes[1].arrive(4); });
  EXPECT_EQ(error.code(), ErrorCode::peer_lost);
  EXPECT_THAT(error.what(), AllOf(HasSubstr("is gone"), HasSubstr("--rendezvous etcd://")));

  const net::SilentPort silent;
  job.processes[2].coordinator = silent.endpoint();
  EXPECT_THAT(std::string(error_of([&] {
                            job.processes[2].arrive(4, Deadline::after(Milliseconds(300)));
                          }).what()),
              AllOf(HasSubstr("did not answer within 300 ms"), HasSubstr("etcd://")));
  for (const Standing& each : job.processes) EXPECT_FALSE(each.standby->has_taken_over());
}

}  // namespace
}  // namespace trireme::membership::elastic_coordinator_test
