// Elastic jobs whose coordinator is found through etcd.
#include <gmock/gmock.h>
#include <array>
#include <thread>

#include "../net/silent_port.h"
#include "published.h"
#include "standing.h"

namespace trireme::membership::etcd_coordinator_test {
namespace {

using namespace std::chrono_literals;
using ::testing::AllOf;
using ::testing::HasSubstr;

struct JobOfTwo {
  explicit JobOfTwo(const net::EtcdServer& server, Milliseconds refill = Milliseconds(10000),
                    Milliseconds regroup = Milliseconds(300))
      : where(server.url("job")),
        first(std::make_unique<Coordinator>(kAnyPort, kToken, MembershipOptions{.workers = 2},
                                            RosterOptions{.minimum = 1,
                                                          .maximum = 2,
                                                          .target = 2,
                                                          .regroup_timeout = regroup,
                                                          .refill_timeout = refill,
                                                          .nodes = 2,
                                                          .by_claim = true})) {
    first->publish(where);
    for (Standing* each : {&one, &other}) each->arrive(-1);
    for (Standing* each : {&one, &other}) EXPECT_EQ(each->place().generation, 0);
  }
  const net::EtcdUrl where;
  std::unique_ptr<Coordinator> first;
  Standing one{10, where}, other{11, where};
};

TEST(EtcdRendezvous, TheSuccessorIsPublishedAndFoundByNewcomers) {
  TRIREME_START_ETCD(server);
  JobOfTwo job(*server);
  EXPECT_EQ(published(*server), job.first->endpoint().describe());
  job.first.reset();
  job.one.standby.reset();  // The launcher and this worker were killed.
  job.other.arrive(4);
  const Arrival::Place alone = job.other.place();
  EXPECT_EQ(alone.generation, 1);
  EXPECT_EQ(alone.workers, 1);
  EXPECT_EQ(published(*server), job.other.standby->endpoint().describe());

  Standing newcomer(12, job.where);
  newcomer.arrive(-1);  // The newcomer knows only etcd.
  job.other.arrive(5);
  EXPECT_EQ(job.other.place().workers, 2);
  EXPECT_EQ(newcomer.place().worker, 1);
}

TEST(EtcdRendezvous, HalfOfAJobContinuesOnceTheLeaseOfTheOtherHalfHasRunOut) {
  TRIREME_START_ETCD(server);
  JobOfTwo job(*server);
  const net::SilentPort silent;
  job.first->withdraw(soon());
  publish(*server, silent.endpoint(), 2s);
  job.other.coordinator = job.other.former->coordinator = job.other.former->members[0].standby =
      silent.endpoint();
  job.other.arrive(4);
  const Arrival::Place place = job.other.place();
  EXPECT_EQ(place.generation, 1);
  EXPECT_EQ(place.workers, 1);
  EXPECT_EQ(published(*server), job.other.standby->endpoint().describe());
}

TEST(EtcdRendezvous, NoPartOfAJobContinuesWhileAnotherHoldsTheName) {
  TRIREME_START_ETCD(server);
  JobOfTwo job(*server, Milliseconds(500));
  const net::SilentPort silent;
  job.first->withdraw(soon());
  publish(*server, silent.endpoint(), 60s);
  for (Standing* each : {&job.one, &job.other}) {
    each->coordinator = each->former->coordinator = silent.endpoint();
    each->arrive(4);  // Even both members, the whole job, may not continue.
  }
  EXPECT_THAT(std::string(error_of([&] { job.other.place(); }).what()),
              HasSubstr("does not hold the job's name in etcd"));
}

// At first neither process sees the other's standby.
TEST(EtcdRendezvous, OneOfTwoStandbysTakesOverAndTheOtherSendsItsMembersThere) {
  TRIREME_START_ETCD(server);
  JobOfTwo job(*server, Milliseconds(10000), Milliseconds(10000));
  const net::SilentPort silent;
  job.first->withdraw(soon());
  publish(*server, silent.endpoint(), 2s);
  std::swap(job.other.former->members[0], job.other.former->members[1]);
  const std::array<Standing*, 2> both{&job.one, &job.other};
  for (Standing* each : both) {
    each->coordinator = each->former->coordinator = silent.endpoint();
    each->arrive(4);
  }
  EXPECT_NE(job.one.arrival->coordinator().port, job.other.arrival->coordinator().port);
  on_each(2, [&](int i) {
    Standing& each = *both[static_cast<size_t>(i)];
    try {
      EXPECT_EQ(each.place().workers, 2);
    } catch (const Error& turned_away) {
      EXPECT_EQ(turned_away.code(), ErrorCode::peer_lost);
      each.arrive(4);
      EXPECT_EQ(each.place().workers, 2);
    }
  });
  EXPECT_EQ(job.one.coordinator.port, job.other.coordinator.port);
  EXPECT_NE(job.one.standby->has_taken_over(), job.other.standby->has_taken_over());
}

TEST(EtcdRendezvous, ACoordinatorThatLostItsNameClosesAllConnections) {
  TRIREME_START_ETCD(server);
  JobOfTwo job(*server);
  Arrival waiting(job.first->endpoint(), kToken,
                  {12, -1, "", [](const auto&) { return kAnyPort; }}, {}, soon());
  publish(*server, job.one.standby->endpoint(), 60s);
  EXPECT_TRUE(eventually([&] { return job.first->was_superseded(); }));
  EXPECT_EQ(error_of([&] { waiting.wait(soon()); }).code(), ErrorCode::peer_lost);
}

TEST(CoordinatorLookup, NamesEtcdTheKeyAndTheLastFailure) {
  TRIREME_START_ETCD(server);
  const auto waits_in_vain = [](const net::EtcdUrl& where) {
    const Error error = error_of(
        [&] { CoordinatorLookup(where).wait(kToken, Deadline::after(Milliseconds(100))); });
    EXPECT_EQ(error.code(), ErrorCode::timeout);
    EXPECT_THAT(error.what(),
                AllOf(HasSubstr(where.describe()), HasSubstr("/trireme/job/coordinator")));
    return std::string(error.what());
  };
  EXPECT_THAT(waits_in_vain({{{"127.0.0.1", 1}}, "job"}), HasSubstr("etcd does not answer"));
  EXPECT_THAT(waits_in_vain(server->url("job")),
              AllOf(HasSubstr("no coordinator is published"), HasSubstr("try: start node 0")));
  publish(*server, {"127.0.0.1", 1}, 60s);
  EXPECT_THAT(waits_in_vain(server->url("job")), HasSubstr("nothing listens there any more"));
}

TEST(CoordinatorLookup, WaitsForACoordinatorThatComesLater) {
  TRIREME_START_ETCD(server);
  std::unique_ptr<Coordinator> coordinator;
  std::thread later([&] {
    coordinator = std::make_unique<Coordinator>(kAnyPort, kToken, MembershipOptions{.workers = 1});
    coordinator->publish(server->url("job"));
  });
  const net::Endpoint found = CoordinatorLookup(server->url("job")).wait(kToken, soon());
  later.join();
  EXPECT_EQ(found.port, coordinator->endpoint().port);
}

}  // namespace
}  // namespace trireme::membership::etcd_coordinator_test
