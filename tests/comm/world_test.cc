#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include <trireme/net/message.h>
#include "../base/expect_error.h"
#include "ranks.h"

namespace trireme::world_test {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;
using tests::Ending;
using tests::Workers;

World alone(WorldOptions options = {}) { return World::join(std::move(options), Environment()); }

template <typename Body>
std::vector<Ending> endings_of(Workers& workers, Body body) {
  std::vector<Ending> endings(static_cast<size_t>(workers.count()));
  workers.on_each([&](World& world) {
    try {
      body(world);
    } catch (const Error& error) {
      endings[static_cast<size_t>(world.worker())] = {true, error.code(), error.what()};
    }
  });
  return endings;
}

TEST(World, AloneIsAWorldOfOne) {
  World world = alone();
  EXPECT_EQ(world.rank(), 0);
  EXPECT_EQ(world.size(), 1);
  const auto groups = world.make_groups();
  ASSERT_EQ(groups.size(), 1u);
  const at::Tensor tensor = at::full({3}, 2.0);
  groups[0]->all_reduce(tensor, ReduceOp::mean);
  groups[0]->barrier();
  EXPECT_TRUE(tensor.equal(at::full({3}, 2.0)));
  world.agree("anything", {{"key", "value"}});
  EXPECT_EQ(world.coordinator_cpu_seconds(), 0);
  world.leave();
}

TEST(World, AloneWithReplicasHasThreads) {
  World world = alone();
  const auto groups = world.make_groups(3);
  ASSERT_EQ(groups.size(), 3u);
  EXPECT_EQ(groups[2]->rank(), 2);
  EXPECT_EQ(groups[0]->backend(), "threads");
}

TEST(World, OneWorkerOfALauncherMeetsItsCoordinator) {
  Workers workers(1);
  workers[0].connect();
  EXPECT_EQ(workers[0].identity().launcher, membership::Launcher::trireme);
  workers.leave();
  EXPECT_TRUE(workers.coordinator().said_goodbye(0));
}

TEST(World, WorkersOfALauncherAreRanksAndLeaveWithAGoodbye) {
  Workers workers(3);
  for (int worker = 0; worker < 3; ++worker) EXPECT_EQ(workers[worker].rank(), worker);
  workers.on_each([](World& world) { world.connect(); });
  workers.on_each([](World& world) {
    world.set_phase(Phase::forward, 4);
    EXPECT_GE(world.coordinator_cpu_seconds(), 0);
  });
  workers.leave();
  for (int worker = 0; worker < 3; ++worker)
    EXPECT_TRUE(workers.coordinator().said_goodbye(worker)) << worker;
}

// Rank 0 runs the coordinator itself, as under torchrun.
TEST(World, WorkersOfTorchrunMeetAtRankZero) {
  const auto port = std::to_string([] {
    membership::Coordinator probe({"127.0.0.1", 0}, "probe", membership::MembershipOptions());
    return probe.endpoint().port;
  }());
  const auto environment = [&](int rank) {
    return Environment({{"RANK", std::to_string(rank)},
                        {"WORLD_SIZE", "2"},
                        {"LOCAL_RANK", std::to_string(rank)},
                        {"LOCAL_WORLD_SIZE", "2"},
                        {"MASTER_ADDR", "127.0.0.1"},
                        {"MASTER_PORT", port},
                        {"TRIREME_JOB_TOKEN", "a token of this test"}});
  };
  tests::on_threads(2, [&](int rank) {
    World world = World::join(tests::world_options(), environment(rank));
    EXPECT_EQ(world.identity().launcher, membership::Launcher::torchrun);
    const auto groups = world.make_groups();
    const at::Tensor tensor = at::full({3}, rank + 1.0);
    groups[0]->all_reduce(tensor);
    EXPECT_TRUE(tensor.equal(at::full({3}, 3.0)));
    world.leave();
  });
}

TEST(World, EachCallMakesGroupsOfTheirOwn) {
  WorldOptions options = tests::world_options();
  options.backend = "gloo";  // It works while the caller continues.
  Workers workers(2, options);
  workers.on_each([](World& world) {
    const auto first = world.make_groups(), second = world.make_groups();
    const at::Tensor a = at::ones({2}), b = at::full({2}, 5.0);
    // Each worker uses another order, and the groups must not be mixed up.
    const WorkPtr one =
        world.rank() == 0 ? first[0]->all_reduce_async(a) : second[0]->all_reduce_async(b);
    const WorkPtr two =
        world.rank() == 0 ? second[0]->all_reduce_async(b) : first[0]->all_reduce_async(a);
    one->wait();
    two->wait();
    EXPECT_TRUE(a.equal(at::full({2}, 2.0)));
    EXPECT_TRUE(b.equal(at::full({2}, 10.0)));
  });
  workers.leave();
}

TEST(World, AgreeingOnEqualFactsPasses) {
  Workers workers(3);
  workers.on_each([](World& world) { world.agree("model", {{"layers", "3"}}); });
  workers.leave();
}

TEST(World, AgreeNamesTwoWorkersAndTheDifference) {
  Workers workers(3);
  const auto endings = endings_of(workers, [](World& world) {
    world.agree("configuration",
                {{"data.batch", "64"}, {"optimizer.lr", world.worker() == 2 ? "0.2" : "0.1"}});
  });
  for (const Ending& ending : endings) {
    EXPECT_EQ(to_string(ending.code), to_string(ErrorCode::invalid_argument));
    EXPECT_THAT(ending.what, AllOf(HasSubstr("configuration"), HasSubstr("optimizer.lr"),
                                   HasSubstr("0.1"), HasSubstr("0.2")));
    EXPECT_THAT(ending.what,
                AllOf(HasSubstr("worker 2"), AnyOf(HasSubstr("worker 0"), HasSubstr("worker 1"))));
  }
}

TEST(World, WorkersWithOtherReplicasAreRefusedByBothNumbers) {
  Workers workers(2);
  const auto endings =
      endings_of(workers, [](World& world) { world.connect(world.worker() + 1); });
  for (const Ending& ending : endings) {
    EXPECT_EQ(to_string(ending.code), to_string(ErrorCode::invalid_argument));
    EXPECT_THAT(ending.what, HasSubstr("replicas a worker"));
  }
}

TEST(World, ConnectingAgainWithOtherReplicasIsRefused) {
  World world = alone();
  world.connect(2);
  world.connect(2);
  EXPECT_THAT(message_of(ErrorCode::invalid_argument, [&] { world.connect(3); }),
              AllOf(HasSubstr("2 replicas"), HasSubstr("3")));
}

TEST(World, HasAtLeastOneReplica) {
  World world = alone();
  EXPECT_THAT(message_of(ErrorCode::invalid_argument, [&] { world.connect(0); }),
              HasSubstr("0 replicas"));
  world.connect(1);
}

TEST(World, RefusesABackendItDoesNotHave) {
  EXPECT_THAT(message_of(ErrorCode::unsupported, [] { alone({.backend = "carrier pigeon"}); }),
              AllOf(HasSubstr("carrier pigeon"), HasSubstr("gloo")));
}

TEST(World, ThreadsDoNotJoinProcesses) {
  WorldOptions options = tests::world_options();
  options.backend = "threads";
  Workers workers(2, options);
  for (const Ending& ending : endings_of(workers, [](World& world) { world.make_groups(); }))
    EXPECT_THAT(ending.what, HasSubstr("2 processes"));
  workers.leave();
}

TEST(World, RefusesATimeoutOfNothing) {
  EXPECT_THAT(message_of(ErrorCode::invalid_argument, [] { alone({.timeout = Milliseconds(0)}); }),
              HasSubstr("comm.timeout"));
}

TEST(World, RefusesAnAlgorithmItDoesNotKnowBeforeConnecting) {
  EXPECT_THAT(message_of(ErrorCode::invalid_argument, [] { alone({.all_reduce = "telepathy"}); }),
              AllOf(HasSubstr("telepathy"), HasSubstr("ring")));
}

TEST(World, AMissingWorkerEndsInTimeoutThatNamesIt) {
  Workers workers(3, tests::world_options(Milliseconds(500)));
  const auto endings = endings_of(workers, [](World& world) {
    if (world.worker() != 1) world.connect();
  });
  for (const int worker : {0, 2}) {
    EXPECT_EQ(to_string(endings[static_cast<size_t>(worker)].code), to_string(ErrorCode::timeout));
    EXPECT_THAT(endings[static_cast<size_t>(worker)].what, HasSubstr("worker 1"));
  }
}

TEST(World, AWrongTokenIsRefused) {
  membership::Coordinator coordinator({"127.0.0.1", 0}, "the right token of this job",
                                      {.workers = 2});
  World world = World::join(tests::world_options(),
                            Environment({{"TRIREME_WORKER", "0"},
                                         {"TRIREME_WORKERS", "2"},
                                         {"TRIREME_RENDEZVOUS", coordinator.endpoint().describe()},
                                         {"TRIREME_JOB_TOKEN", "another token than the job's"}}));
  EXPECT_THAT(message_of(ErrorCode::invalid_argument, [&] { world.connect(); }),
              HasSubstr("token"));
}

}  // namespace
}  // namespace trireme::world_test
