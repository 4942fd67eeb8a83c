// The traffic and placements of groups that tests of all backends do not have: every algorithm,
// hosts that threads play, and messages of several threads.
#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include <algorithm>
#include "forecast.h"
#include "ranks.h"

namespace trireme::traffic_test {
namespace {

using ::testing::ElementsAre;
using tests::always;
using tests::Call;
using tests::Forecast;
using tests::Groups;
using tests::on_ranks;
using tests::Workers;

void expect_what_is_foreseen(const Groups& groups) {
  const std::vector<Call> calls = tests::some_calls(static_cast<int>(groups.size()));
  Forecast forecast(groups[0]->placement());
  for (const Call& call : calls) forecast.add(call);
  on_ranks(groups, [&](Group& group) {
    for (const Call& call : calls) tests::perform(group, call);
  });
  forecast.expect_of(groups);
}

class TrafficByAlgorithm : public ::testing::TestWithParam<plan::Algorithm> {
 protected:
  // Groups whose every collective follows the algorithm, if it has it.
  static Groups groups_of(Workers& workers) {
    workers.on_each([](World& world) {
      world.connect();
      world.set_table(always(GetParam()));
    });
    return workers.make_groups();
  }
};

TEST_P(TrafficByAlgorithm, OfThreadsIsThatOfThePlan) {
  for (const std::vector<int>& hosts : {std::vector<int>(4), {0, 1, 1, 0, 2}}) {
    const comm::ThreadGroupOptions options{
        .table = always(GetParam()), .hosts = hosts, .timeout = Milliseconds(20000)};
    expect_what_is_foreseen(comm::make_thread_groups(static_cast<int>(hosts.size()), options));
  }
}

TEST_P(TrafficByAlgorithm, OfProcessesOfOneHostIsThatOfThePlan) {
  Workers workers(3);
  const Groups groups = groups_of(workers);
  EXPECT_EQ(groups[0]->backend(), "shm");
  expect_what_is_foreseen(groups);
  workers.leave();
}

TEST_P(TrafficByAlgorithm, OfTcpIsThatOfThePlan) {
  WorldOptions options = tests::world_options();
  options.backend = "tcp";
  Workers workers(3, options);
  const Groups groups = groups_of(workers);
  EXPECT_EQ(groups[0]->backend(), "tcp");
  expect_what_is_foreseen(groups);
  workers.leave();
}

INSTANTIATE_TEST_SUITE_P(Algorithms, TrafficByAlgorithm,
                         ::testing::ValuesIn(plan::all_algorithms().begin(),
                                             plan::all_algorithms().end()),
                         [](const auto& each) { return std::string(to_string(each.param)); });

TEST(Traffic, OfSharedTensorsIsThatOfThePlan) {
  Workers workers(2);
  const Groups groups = workers.make_groups();
  Forecast forecast(groups[0]->placement());
  for (const int64_t count : {1001, 100003}) forecast.add({tests::Act::all_reduce, count});
  on_ranks(groups, [](Group& group) {
    for (const int64_t count : {1001, 100003})
      group.all_reduce(group.shared_tensor({count}, at::kFloat).zero_());
  });
  forecast.expect_of(groups);
  workers.leave();
}

TEST(Traffic, CountsAnOperationThatIsStartedAndAwaitedOnce) {
  const Groups groups = tests::thread_groups(2);
  Forecast forecast(groups[0]->placement());
  forecast.add({tests::Act::all_reduce, 100});
  on_ranks(groups, [](Group& group) { group.all_reduce_async(at::zeros({100}))->wait(); });
  forecast.expect_of(groups);
}

TEST(Traffic, CountsNothingThatIsRefused) {
  const Groups groups = tests::thread_groups(2);
  EXPECT_THROW(groups[0]->all_reduce(at::Tensor()), Error);
  EXPECT_THROW(groups[0]->send(at::ones({4}), 0), Error);
  Forecast(groups[0]->placement()).expect_of(groups);
}

TEST(Traffic, CountsTheMessagesOfSeveralThreads) {
  constexpr int kThreads = 4, kMessages = 50;
  WorldOptions options = tests::world_options();
  options.backend = "tcp";
  Workers workers(2, options);
  const Groups groups = workers.make_groups();
  on_ranks(groups, [](Group& group) {
    const int other = 1 - group.rank();
    if (group.rank() == 0) {
      tests::on_threads(kThreads, [&](int tag) {
        for (int i = 0; i < kMessages; ++i) group.send(at::ones({3}), other, tag);
      });
    } else {
      for (int i = 0; i < kMessages; ++i)
        for (int tag = 0; tag < kThreads; ++tag) group.recv(at::empty({3}), other, tag);
    }
  });
  EXPECT_EQ(groups[0]->traffic().operations, kThreads * kMessages);
  EXPECT_EQ(groups[0]->traffic().bytes_sent, kThreads * kMessages * 3 * 4);
  EXPECT_EQ(groups[1]->traffic().operations, 0);
  EXPECT_EQ(groups[1]->traffic().bytes_sent, 0);
  workers.leave();
}

// Two threads of a process send through one group.
TEST(Traffic, OfMessagesToOtherHostsIsThatOfTheirSender) {
  for (const std::vector<std::string>& hosts :
       {std::vector<std::string>{"a", "b"}, {"a", "b", "b"}}) {
    Workers workers(static_cast<int>(hosts.size()), tests::world_options(), hosts);
    const Groups groups = workers.make_groups(2);
    on_ranks(groups, [](Group& group) {
      if (group.rank() == 1) group.send(at::ones({5}), 2);
      if (group.rank() == 2) group.recv(at::empty({5}), 1);
    });
    for (const auto& group : groups) {
      const int64_t messages = group->rank() == 1 ? 1 : 0;
      EXPECT_EQ(group->traffic().operations, messages) << "rank " << group->rank();
      EXPECT_EQ(group->traffic().bytes_sent, messages * 20) << "rank " << group->rank();
    }
    workers.leave();
  }
}

TEST(GroupPlacement, OfThreadsKeepsTheHostsThatTheyPlay) {
  const std::vector<int> hosts{0, 1, 0};
  const Groups groups = comm::make_thread_groups(3, {.hosts = hosts});
  const plan::Placement placement = groups[0]->placement();
  EXPECT_EQ(placement.host_count(), 1) << "they share memory";
  EXPECT_EQ(placement.inside[0].path, "threads");
  EXPECT_EQ(placement.inside[0].hosts, hosts);
}

TEST(GroupPlacement, OfSeveralHostsHasThreadsWhereAProcessIsAlone) {
  Workers workers(3, tests::world_options(), {"a", "b", "b"});
  const Groups groups = workers.make_groups(2);
  const plan::Placement placement = groups[0]->placement();
  ASSERT_EQ(placement.host_count(), 2);
  EXPECT_THAT(placement.hosts, ElementsAre(0, 0, 1, 1, 1, 1));
  EXPECT_EQ(placement.inside[0].path, "threads");
  EXPECT_EQ(placement.inside[1].path, "shm");
  EXPECT_THAT(placement.inside[1].ranks, ElementsAre(2, 3, 4, 5));
  ASSERT_TRUE(placement.between);
  EXPECT_EQ(placement.between->path, groups[0]->between_hosts()->backend());
  EXPECT_THAT(placement.between->ranks, ElementsAre(0, 2));
  workers.leave();
}

// By their addresses all of them are on one host, as far as the network is concerned.
TEST(GroupPlacement, OfTcpTellsHostsApartByAddress) {
  WorldOptions options = tests::world_options();
  options.backend = "tcp";
  for (const int replicas : {1, 2}) {
    Workers workers(2, options);
    const plan::Placement placement = workers.make_groups(replicas)[0]->placement();
    EXPECT_EQ(placement.host_count(), 2);
    ASSERT_TRUE(placement.between);
    EXPECT_EQ(placement.between->path, "tcp");
    EXPECT_THAT(placement.between->hosts, ElementsAre(0, 0));
    workers.leave();
  }
}

TEST(GroupPlacement, KeepsTheTableOfTheJob) {
  Workers workers(2, tests::world_options(), {"a", "b"});
  const plan::CollectiveTable table = always(plan::Algorithm::ring);
  workers.on_each([&](World& world) {
    world.connect(2);
    world.set_table(table);
  });
  for (const auto& group : workers.make_groups(2)) EXPECT_EQ(group->placement().table, table);
  workers.leave();
}

}  // namespace
}  // namespace trireme::traffic_test
