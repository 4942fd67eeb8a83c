// Groups of some ranks, over every carrier: their results, their names, wrong lists, and what a
// loss in one of them means for the others.
#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include <sys/wait.h>
#include <trireme/watch/phase_marks.h>
#include <trireme/watch/phase_page.h>
#include <unistd.h>
#include <csignal>
#include <future>
#include <thread>
#include "../base/expect_error.h"
#include "forecast.h"
#include "ranks.h"

namespace trireme::some_ranks_test {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using tests::Groups;
using tests::Workers;

struct Site {
  std::string name;
  int workers = 1, replicas = 1;
  std::string backend = "auto";
  std::vector<std::string> hosts;  // [worker], if the workers play several hosts.
  int ranks() const { return workers * replicas; }
};

class SomeRanks : public ::testing::TestWithParam<Site> {
 protected:
  void SetUp() override {
    const Site& site = GetParam();
    WorldOptions options = tests::world_options();
    options.backend = site.backend;
    workers_.emplace(site.workers, options, site.hosts);
    workers_->on_each([&](World& world) { world.connect(site.replicas); });
  }
  void TearDown() override { workers_->leave(); }
  int ranks() const { return GetParam().ranks(); }
  // [rank of the world]; null outside the group.
  Groups group_of(const std::vector<int>& members) {
    std::vector<Groups> made(static_cast<size_t>(workers_->count()));
    workers_->on_each([&](World& world) {
      made[static_cast<size_t>(world.worker())] = world.make_group(members);
    });
    Groups all;
    for (auto& groups : made) all.insert(all.end(), groups.begin(), groups.end());
    return all;
  }
  std::vector<MeshRank> mesh_of(const plan::Mesh& mesh) {
    std::vector<std::vector<MeshRank>> made(static_cast<size_t>(workers_->count()));
    workers_->on_each(
        [&](World& world) { made[static_cast<size_t>(world.worker())] = world.mesh(mesh); });
    std::vector<MeshRank> all;
    for (auto& places : made) all.insert(all.end(), places.begin(), places.end());
    return all;
  }

  std::optional<Workers> workers_;
};

// Every operation once, with sizes on both sides of the thresholds of plans.
void expect_right_results(Group& group, int64_t count) {
  const int rank = group.rank(), size = group.size();
  const double all = size * (size + 1) / 2.0;
  const at::Tensor sum = at::full({count}, rank + 1.0);
  group.all_reduce(sum);
  EXPECT_TRUE(sum.equal(at::full({count}, all)));
  const at::Tensor part = at::empty({count});
  group.reduce_scatter(at::full({count * size}, rank + 1.0), part);
  EXPECT_TRUE(part.equal(at::full({count}, all)));
  const at::Tensor gathered = at::empty({size, count});
  group.all_gather(at::full({count}, static_cast<double>(rank)), gathered);
  const at::Tensor exchanged = at::empty({size, count});
  group.all_to_all(
      at::arange(size).to(at::kFloat).unsqueeze(1).expand({size, count}).contiguous() +
          100.0 * rank,
      exchanged);
  for (int other = 0; other < size; ++other) {
    EXPECT_TRUE(gathered[other].equal(at::full({count}, static_cast<double>(other))));
    EXPECT_TRUE(exchanged[other].equal(at::full({count}, 100.0 * other + rank)));
  }
  const at::Tensor handed_out = at::full({count}, static_cast<double>(rank));
  group.broadcast(handed_out, size - 1);
  EXPECT_TRUE(handed_out.equal(at::full({count}, size - 1.0)));
  if (size == 1) return;
  const at::Tensor received = at::empty({count});
  const WorkPtr receiving = group.recv_async(received, (rank + size - 1) % size, 1);
  group.send_async(handed_out + rank, (rank + 1) % size, 1)->wait();
  receiving->wait();
  EXPECT_TRUE(received.equal(at::full({count}, size - 1.0 + (rank + size - 1) % size)));
  group.barrier();
}

TEST_P(SomeRanks, ActTogetherAndTheOthersGetNoGroup) {
  std::vector<std::vector<int>> lists{{0}, {ranks() - 1, 0}};
  for (int first = 0; first + 1 < ranks(); ++first) lists.push_back({first, first + 1});
  std::vector<int> even, backwards;
  for (int rank = 0; rank < ranks(); rank += 2) even.push_back(rank);
  for (int rank = ranks() - 1; rank > 0; --rank) backwards.push_back(rank);
  lists.push_back(even);
  lists.push_back(backwards);
  for (const auto& members : lists) {
    const Groups groups = group_of(members);
    ASSERT_EQ(groups.size(), static_cast<size_t>(ranks()));
    tests::on_threads(ranks(), [&](int rank) {
      const auto place = std::find(members.begin(), members.end(), rank);
      const auto& group = groups[static_cast<size_t>(rank)];
      ASSERT_EQ(group != nullptr, place != members.end()) << rank;
      if (!group) return;
      EXPECT_EQ(group->rank(), place - members.begin());
      EXPECT_EQ(group->size(), static_cast<int>(members.size()));
      EXPECT_NO_THROW(plan::check(group->placement()));
      for (const int64_t count : {1, 7, 40000}) expect_right_results(*group, count);
    });
  }
}

TEST_P(SomeRanks, SendWhatTheirPlacementForesees) {
  std::vector<int> members;
  for (int rank = 1; rank < ranks(); ++rank) members.push_back(rank);
  Groups groups;
  for (const auto& group : group_of(members))
    if (group) groups.push_back(group);
  const std::vector<tests::Call> calls = tests::some_calls(static_cast<int>(groups.size()));
  tests::Forecast forecast(groups[0]->placement());
  for (const tests::Call& call : calls) forecast.add(call);
  tests::on_ranks(groups, [&](Group& group) {
    for (const tests::Call& call : calls) tests::perform(group, call);
  });
  forecast.expect_of(groups);
}

TEST_P(SomeRanks, HaveAGroupAlongEachAxisOfAMesh) {
  std::vector<plan::Mesh> meshes{plan::Mesh({{"data", ranks()}}),
                                 plan::Mesh({{"data", 1}, {"tensor", ranks()}})};
  for (int inner = 2; inner < ranks(); ++inner)
    if (ranks() % inner == 0)
      meshes.push_back(plan::Mesh({{"data", ranks() / inner}, {"tensor", inner}}));
  if (ranks() == 8) meshes.push_back(plan::Mesh({{"data", 2}, {"stage", 2}, {"tensor", 2}}));
  for (const plan::Mesh& mesh : meshes) {
    const std::vector<MeshRank> places = mesh_of(mesh);
    tests::on_threads(ranks(), [&](int rank) {
      const MeshRank& place = places[static_cast<size_t>(rank)];
      EXPECT_EQ(place.rank, rank);
      EXPECT_EQ(place.coordinates, mesh.coordinates_of(rank));
      for (size_t axis = 0; axis < mesh.axes().size(); ++axis) {
        Group& group = *place.along(mesh.axes()[axis].name);
        EXPECT_EQ(group.rank(), place.coordinates[axis]);
        EXPECT_EQ(group.size(), mesh.axes()[axis].size);
        const at::Tensor members = at::empty({group.size()}, at::kInt);
        group.all_gather(at::full({1}, rank, at::kInt), members);
        const std::vector<int> peers = mesh.peers_along(mesh.axes()[axis].name, rank);
        EXPECT_TRUE(members.equal(at::tensor(peers, at::kInt)));
        expect_right_results(group, 5000);
      }
      EXPECT_THAT(message_of(ErrorCode::invalid_argument, [&] { (void)place.along("expert"); }),
                  AllOf(HasSubstr("'expert'"), HasSubstr("data")));
    });
  }
}

// The threads of a rank use its groups at the same time, in any order.
TEST_P(SomeRanks, UseSeveralGroupsAtOnceFromSeveralThreads) {
  if (ranks() % 2 != 0) return;
  const std::vector<MeshRank> places = mesh_of(plan::Mesh({{"data", ranks() / 2}, {"tensor", 2}}));
  tests::on_threads(2 * ranks(), [&](int thread) {
    const MeshRank& place = places[static_cast<size_t>(thread / 2)];
    Group& group = *place.along(thread % 2 == 0 ? "data" : "tensor");
    for (int repeat = 0; repeat < 20; ++repeat) {
      const at::Tensor tensor = at::full({100 * (1 + repeat)}, 1.0);
      group.all_reduce(tensor);
      EXPECT_TRUE(tensor.equal(at::full_like(tensor, group.size())));
    }
  });
}

TEST_P(SomeRanks, AnAbortInOneGroupEndsWaitsInTheOthers) {
  if (GetParam().workers > 1) return;  // Other processes hear of it when this one ends.
  const std::vector<MeshRank> places = mesh_of(plan::Mesh({{"data", 2}, {"tensor", 2}}));
  // Rank 0 gives up in its "tensor" group. Rank 3 is in no group with it.
  std::vector<std::string> endings(4);
  tests::on_threads(4, [&](int rank) {
    const MeshRank& place = places[static_cast<size_t>(rank)];
    if (rank == 0) return place.along("tensor")->abort("rank 0 has had enough");
    try {
      place.along(rank == 2 ? "data" : "tensor")->recv(at::ones({4}), 0);
      ADD_FAILURE() << "nobody sends";
    } catch (const Error& error) {
      EXPECT_EQ(to_string(error.code()), to_string(ErrorCode::aborted)) << rank;
      endings[static_cast<size_t>(rank)] = error.what();
    }
  });
  for (const int rank : {1, 2, 3})
    EXPECT_THAT(endings[static_cast<size_t>(rank)], HasSubstr("rank 0 has had enough")) << rank;
}

// The message of the error that ends a receive from rank `from` of the group.
std::string end_of_receive(Group& group, int from) {
  return message_of(ErrorCode::aborted, [&] { group.recv(at::ones({4}), from); });
}

TEST(GroupsOfThreads, AreToldOfAnAbortUnderTheRankThatEachGroupKnows) {
  World world =
      World::join(tests::world_options(), Environment(std::map<std::string, std::string>()));
  world.connect(3);
  const Groups all = world.make_group({0, 1, 2}), backwards = world.make_group({2, 1}),
               others = world.make_group({1, 0});
  all[2]->abort("enough");
  EXPECT_THAT(end_of_receive(*all[0], 1), HasSubstr("rank 2 gave up: enough"));
  EXPECT_THAT(end_of_receive(*backwards[1], 0), HasSubstr("rank 0 gave up: enough"));
  EXPECT_THAT(end_of_receive(*others[0], 0),
              HasSubstr("gave up: rank 2 of the world gave up: enough"));
}

// A verdict compares the numbers of ranks, so a message must not shift those of two ranks alone.
TEST(GroupsOfThreads, DoNotCountMessagesAmongTheCollectives) {
  World world =
      World::join(tests::world_options(), Environment(std::map<std::string, std::string>()));
  world.connect(3);
  const Groups all = world.make_group({0, 1, 2});
  std::vector<int64_t> counted(all.size());
  std::vector<std::thread> threads;
  for (size_t rank = 0; rank < all.size(); ++rank)
    threads.emplace_back([&, rank] {
      const auto page = std::make_shared<watch::PhasePage>();
      watch::mark_this_thread(page);
      at::Tensor tensor = at::ones({4});
      if (rank == 0) all[rank]->send(tensor, 1);
      if (rank == 1) all[rank]->recv(tensor, 0);
      all[rank]->barrier();
      counted[rank] = page->collective();
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_THAT(counted, Each(1));
}

std::string name_of(const ::testing::TestParamInfo<Site>& info) { return info.param.name; }
INSTANTIATE_TEST_SUITE_P(
    Carriers, SomeRanks,
    ::testing::Values(Site{"threads", 1, 4}, Site{"shm", 4, 1}, Site{"shm_and_threads", 2, 3},
                      Site{"shm_and_threads_8", 2, 4}, Site{"tcp", 4, 1, "tcp"},
                      Site{"tcp_and_threads", 2, 2, "tcp"}, Site{"gloo", 4, 1, "gloo"},
                      Site{"gloo_and_threads", 3, 2, "gloo"},
                      Site{"hosts_aabb", 4, 1, "auto", {"a", "a", "b", "b"}},
                      Site{"hosts_abab", 4, 2, "auto", {"a", "b", "a", "b"}},
                      Site{"hosts_abb", 3, 2, "auto", {"a", "b", "b"}}),
    name_of);

TEST(SomeRanksOfAWorld, RefusesListsBeforeAnythingConnects) {
  // Nothing listens at this address.
  World world = World::join(tests::world_options(),
                            Environment({{"TRIREME_WORKER", "0"},
                                         {"TRIREME_WORKERS", "4"},
                                         {"TRIREME_LOCAL_WORKER", "0"},
                                         {"TRIREME_LOCAL_WORKERS", "4"},
                                         {"TRIREME_RENDEZVOUS", "127.0.0.1:1"},
                                         {"TRIREME_JOB_TOKEN", "a token of this test"}}));
  const auto refusal = [&](const std::vector<int>& ranks, int replicas = 1) {
    return message_of(ErrorCode::invalid_argument, [&] { world.make_group(ranks, replicas); });
  };
  EXPECT_THAT(refusal({}), HasSubstr("no ranks"));
  EXPECT_THAT(refusal({0, 4}), AllOf(HasSubstr("rank 4"), HasSubstr("0 to 3")));
  EXPECT_THAT(refusal({-1}), HasSubstr("rank -1"));
  EXPECT_THAT(refusal({0, 8}, 2), AllOf(HasSubstr("rank 8"), HasSubstr("0 to 7")));
  EXPECT_THAT(refusal({2, 1, 2}),
              AllOf(HasSubstr("rank 2 is listed twice"), HasSubstr("places 0 and 2")));
  const auto refused_mesh = [&](const plan::Mesh& mesh) {
    return message_of(ErrorCode::invalid_argument, [&] { world.mesh(mesh, 1); });
  };
  EXPECT_THAT(refused_mesh(plan::Mesh({{"data", 3}})),
              AllOf(HasSubstr("data 3"), HasSubstr("the world has 4"),
                    HasSubstr("ranks 3 to 3 would be in no group")));
  EXPECT_THAT(refused_mesh(plan::Mesh({{"data", 2}, {"tensor", 3}})),
              AllOf(HasSubstr("data 2 x tensor 3 has 6 ranks"), HasSubstr("only 4")));
}

TEST(SomeRanksOfAWorld, NamesWorkersThatListDifferentRanks) {
  Workers workers(3);
  std::vector<std::string> errors(3);
  workers.on_each([&](World& world) {
    try {
      world.make_group(world.worker() == 1 ? std::vector<int>{0, 2} : std::vector<int>{0, 1});
    } catch (const Error& error) {
      errors[static_cast<size_t>(world.worker())] = error.what();
    }
  });
  for (const std::string& error : errors)
    EXPECT_THAT(error, AllOf(HasSubstr("0, 1"), HasSubstr("0, 2"), HasSubstr("worker 1")));
  workers.leave();
}

// Worker 3 is a process of its own, and is killed. Workers 0 and 1 are in no group with it.
class LossInAGroup : public ::testing::TestWithParam<std::string> {};

TEST_P(LossInAGroup, OfAKilledProcessEndsWaitsInAllGroups) {
  constexpr int kWorkers = 4;
  membership::MembershipOptions rules;
  rules.workers = kWorkers;
  rules.join_timeout = Milliseconds(20000);
  std::array<int, 2> address{}, ready{};
  ASSERT_EQ(::pipe(address.data()), 0);
  ASSERT_EQ(::pipe(ready.data()), 0);
  const auto world_of = [](int worker, const std::string& rendezvous) {
    WorldOptions options = tests::world_options(Milliseconds(20000));
    options.backend = GetParam();
    return World::join(options, Environment({{"TRIREME_WORKER", std::to_string(worker)},
                                             {"TRIREME_WORKERS", std::to_string(kWorkers)},
                                             {"TRIREME_LOCAL_WORKER", std::to_string(worker)},
                                             {"TRIREME_LOCAL_WORKERS", std::to_string(kWorkers)},
                                             {"TRIREME_RENDEZVOUS", rendezvous},
                                             {"TRIREME_JOB_TOKEN", Workers::kToken}}));
  };
  const plan::Mesh mesh({{"data", 2}, {"tensor", 2}});
  const pid_t victim = ::fork();  // Before there is any thread.
  if (victim == 0) {
    char text[64] = {};
    if (::read(address[0], text, sizeof text - 1) <= 0) ::_exit(1);
    World world = world_of(3, text);
    const auto places = world.mesh(mesh);
    (void)!::write(ready[1], "r", 1);
    for (;;) ::pause();
  }
  membership::Coordinator coordinator({"127.0.0.1", 0}, Workers::kToken, rules);
  const std::string rendezvous = coordinator.endpoint().describe();
  ASSERT_EQ(::write(address[1], rendezvous.c_str(), rendezvous.size() + 1),
            static_cast<ssize_t>(rendezvous.size()) + 1);
  std::vector<std::string> errors(3);
  std::atomic<int> waiting{0};
  auto killer = std::async(std::launch::async, [&] {
    char byte;
    (void)!::read(ready[0], &byte, 1);
    while (waiting < 3) std::this_thread::yield();
    ::kill(victim, SIGKILL);
    ::waitpid(victim, nullptr, 0);
    coordinator.report_lost(3, "killed by signal 9 (SIGKILL)");
  });
  const auto start = std::chrono::steady_clock::now();
  tests::on_threads(3, [&](int worker) {
    World world = world_of(worker, rendezvous);
    const auto places = world.mesh(mesh);
    ++waiting;
    try {
      // Rank 0 waits for rank 1, which waits for rank 0: neither is in a group with rank 3 there.
      Group& group = *places[0].along(worker == 2 ? "data" : "tensor");
      group.recv(at::ones({4}), 1 - group.rank());
    } catch (const Error& error) {
      errors[static_cast<size_t>(worker)] = error.what();
    }
  });
  killer.get();
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(10));
  for (const std::string& error : errors) EXPECT_THAT(error, HasSubstr("worker 3"));
  for (const auto& ends : {address, ready})
    for (const int end : ends) ::close(end);
}
INSTANTIATE_TEST_SUITE_P(Backends, LossInAGroup, ::testing::Values("auto", "tcp", "gloo"),
                         [](const auto& each) { return each.param; });

}  // namespace
}  // namespace trireme::some_ranks_test
