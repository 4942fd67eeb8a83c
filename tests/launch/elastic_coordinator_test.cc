#include "job.h"

#include <gmock/gmock.h>
#include <trireme/launch/arrival.h>

namespace trireme::launch {
namespace {

using ::testing::HasSubstr;

// As a process that has nothing yet.
Arrival arrive(const Coordinator& coordinator, int64_t process) { return {coordinator.endpoint(), kToken, process, -1, "", soon()}; }

struct ElasticJob {
  // Two are wanted; the first generation forms with one.
  ElasticJob()
      : coordinator(kAnyPort, kToken, {.workers = 2},
                    RosterOptions{.minimum = 1, .maximum = 2, .target = 2, .first_timeout = Milliseconds(20)}) {}
  std::unique_ptr<Member> join(const Arrival::Place& place) {
    return std::make_unique<Member>(coordinator.endpoint(), kToken, place.worker, place.workers, place.generation,
                                    std::map<std::string, std::string>{},
                                    MemberOptions{.timeout = Milliseconds(10000), .heartbeat_interval = Milliseconds(20)});
  }
  Coordinator coordinator;
};

TEST(ElasticCoordinator, PlacesWhoArrives) {
  ElasticJob job;
  const auto place = arrive(job.coordinator, 7).wait(soon());
  ASSERT_TRUE(place);
  EXPECT_EQ(place->workers, 1);
  EXPECT_EQ(place->cause, "start");
  EXPECT_EQ(job.coordinator.worker_of(7), 0);
}

TEST(ElasticCoordinator, AWorkerThatJoinsAfterTheOthersWereAskedToRegroupHearsOfItToo) {
  ElasticJob job;
  const auto place = arrive(job.coordinator, 0).wait(soon());
  ASSERT_TRUE(place);
  const Arrival newcomer = arrive(job.coordinator, 1);  // Before anybody has joined whom it could ask to come.
  const auto member = job.join(*place);
  EXPECT_TRUE(eventually([&] { return member->regroup_wanted(); }));
}

TEST(ElasticCoordinator, HandsOutWhoWasLostWhileItWaited) {
  ElasticJob job;
  const auto place = arrive(job.coordinator, 0).wait(soon());
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

}  // namespace
}  // namespace trireme::launch
