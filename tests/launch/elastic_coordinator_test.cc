#include <gmock/gmock.h>
#include <trireme/launch/arrival.h>
#include <array>

#include "../net/silent_port.h"
#include "standing.h"

namespace trireme::launch {
namespace {

using ::testing::HasSubstr;

const net::Endpoint kNowhere{"127.0.0.1", 1};  // Nobody listens there.

// As a process that has nothing yet.
Arrival arrive(const Coordinator& coordinator, int64_t process) {
  return {coordinator.endpoint(),
          kToken,
          {process, -1, "", [](const std::string&) { return kNowhere; }},
          {},
          soon()};
}

struct ElasticJob {
  // Two are wanted; the first generation forms with one.
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

TEST(ElasticCoordinator, PlacesWhoArrives) {
  ElasticJob job;
  Arrival arrival = arrive(job.coordinator, 7);
  const auto place = arrival.wait(soon());
  ASSERT_TRUE(place);
  EXPECT_EQ(place->workers, 1);
  EXPECT_EQ(place->cause, "start");
  EXPECT_EQ(place->worker, 0);
}

TEST(ElasticCoordinator, AWorkerThatJoinsAfterTheOthersWereAskedToRegroupHearsOfItToo) {
  ElasticJob job;
  Arrival arrival = arrive(job.coordinator, 0);
  const auto place = arrival.wait(soon());
  ASSERT_TRUE(place);
  const Arrival newcomer =
      arrive(job.coordinator, 1);  // Before anybody has joined whom it could ask to come.
  const auto member = job.join(*place);
  EXPECT_TRUE(eventually([&] { return member->regroup_wanted(); }));
}

TEST(ElasticCoordinator, HandsOutWhoWasLostWhileItWaited) {
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

struct JobOfThree {
  JobOfThree()
      : first(std::make_unique<Coordinator>(kAnyPort, kToken, MembershipOptions{.workers = 3},
                                            RosterOptions{.minimum = 1,
                                                          .maximum = 3,
                                                          .target = 3,
                                                          .regroup_timeout = Milliseconds(300),
                                                          .refill_timeout = Milliseconds(300)})) {
    for (Standing& each : processes) each.coordinator = first->endpoint();
    for (Standing& each : processes) each.arrive(-1);
    for (Standing& each : processes) EXPECT_EQ(each.place().generation, 0);
  }
  std::unique_ptr<Coordinator> first;
  std::array<Standing, 3> processes{Standing(10), Standing(11), Standing(12)};
};

TEST(Standby, TakesOverWhereTheCoordinatorIsLost) {
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
  job.processes[0].standby.reset();  // Was killed with it.
  for (const int survivor : {1, 2}) job.processes[static_cast<size_t>(survivor)].arrive(survivor);
  EXPECT_EQ(job.processes[2].place().worker, 0);  // It has the newer state.
  const Arrival::Place place = job.processes[1].place();
  EXPECT_EQ(place.worker, 1);
  EXPECT_EQ(place.former.history.back()["lost_ranks"], Json::array({0}));
  EXPECT_EQ(job.processes[1].coordinator.port, job.processes[1].standby->endpoint().port);

  job.processes[1].standby.reset();  // And the one after it.
  job.processes[2].arrive(3);
  EXPECT_EQ(job.processes[2].place().generation, 2);
}

// A worker whose way to the coordinator is cut must not go on beside the others.
TEST(Standby, AFewDoNotGoOnAloneWhileTheOthersMayLive) {
  JobOfThree job;
  const net::SilentPort silent;
  Standing& cut_off = job.processes[2];
  cut_off.coordinator = cut_off.former->coordinator = silent.endpoint();
  cut_off.former->members[0].standby = cut_off.former->members[1].standby = silent.endpoint();
  cut_off.arrive(4);
  EXPECT_THAT(std::string(error_of([&] { cut_off.place(); }).what()),
              HasSubstr("may go on without these"));
}

}  // namespace
}  // namespace trireme::launch
