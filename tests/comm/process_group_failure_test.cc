// Workers of one job: how the others' waits end when a worker is lost or does not come.
#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include <csignal>
#include <future>
#include "ranks.h"

namespace trireme::process_group_failure_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using tests::Ending;
using tests::endings_of;
using tests::Groups;
using tests::Workers;

constexpr Milliseconds kTimeout{6000};
// The bound for noticing a lost worker: far below the time-out.
constexpr Milliseconds kBound{3000};

WorldOptions options_for(const std::string& backend) {
  WorldOptions options = tests::world_options(kTimeout);
  options.backend = backend;
  return options;
}

struct Wait {
  std::string name;
  std::function<void(Group&)> call;
};
const std::vector<Wait>& waits() {
  static const std::vector<Wait> all{
      {"all_reduce", [](Group& group) { group.all_reduce(at::ones({1000})); }},
      {"all_gather",
       [](Group& group) { group.all_gather(at::ones({10}), at::ones({10 * group.size()})); }},
      {"reduce_scatter",
       [](Group& group) { group.reduce_scatter(at::ones({10 * group.size()}), at::ones({10})); }},
      {"all_to_all",
       [](Group& group) {
         group.all_to_all(at::ones({10 * group.size()}), at::ones({10 * group.size()}));
       }},
      {"broadcast", [](Group& group) { group.broadcast(at::ones({10}), 1); }},
      // Every rank is its own root, so that all wait. TCP compares the calls, so there all ranks
      // use one root.
      {"gather",
       [](Group& group) {
         group.gather(at::ones({10}), at::ones({10 * group.size()}),
                      group.backend() == "tcp" ? 0 : group.rank());
       }},
      {"recv", [](Group& group) { group.recv(at::ones({10}), 1); }},
      {"barrier", [](Group& group) { group.barrier(); }},
  };
  return all;
}

class LostPeer : public ::testing::TestWithParam<std::tuple<std::string, Wait>> {};

// The survivors (workers 0 and 2) wait, and worker 1 is reported lost.
template <typename Lose>
void expect_peer_lost(Workers& workers, const Groups& groups, const Wait& wait, Lose lose) {
  std::promise<void> waiting;
  auto loser = std::async(std::launch::async, [&] {
    waiting.get_future().wait();
    lose();
  });
  std::atomic<int> started{0};
  const auto start = std::chrono::steady_clock::now();
  const auto endings = endings_of({groups[0], groups[2]}, [&](Group& group) {
    if (++started == 2) waiting.set_value();
    wait.call(group);
  });
  const auto took = std::chrono::steady_clock::now() - start;
  loser.get();
  EXPECT_LT(took, kBound);
  for (const Ending& ending : endings) {
    EXPECT_EQ(to_string(ending.code), to_string(ErrorCode::peer_lost)) << ending.what;
    EXPECT_THAT(ending.what, HasSubstr("worker 1"));
  }
  ASSERT_TRUE(workers.coordinator().first_lost().has_value());
  EXPECT_EQ(workers.coordinator().first_lost()->worker, 1);
}

TEST_P(LostPeer, EndsEveryWaitOfTheOthersWhenItsExitIsReported) {
  const auto& [backend, wait] = GetParam();
  Workers workers(3, options_for(backend));
  Groups groups = workers.make_groups();
  expect_peer_lost(workers, groups, wait, [&] {
    workers.coordinator().report_lost(1, "killed by signal 9 (SIGKILL)");
    groups[1].reset();
    workers.vanish(1);
  });
}

TEST_P(LostPeer, EndsEveryWaitOfTheOthersWhenItExitsWithoutAGoodbye) {
  const auto& [backend, wait] = GetParam();
  Workers workers(3, options_for(backend));
  Groups groups = workers.make_groups();
  expect_peer_lost(workers, groups, wait, [&] {
    groups[1].reset();
    workers.vanish(1);
  });
}

INSTANTIATE_TEST_SUITE_P(Waits, LostPeer,
                         ::testing::Combine(::testing::Values("gloo", "shm", "tcp"),
                                            ::testing::ValuesIn(waits())),
                         [](const auto& each) {
                           return std::get<0>(each.param) + "_" + std::get<1>(each.param).name;
                         });

TEST(ProcessGroupFailure, NoOperationStartsAfterAWorkerIsLost) {
  Workers workers(2, tests::world_options(kTimeout));
  Groups groups = workers.make_groups();
  groups[1].reset();
  workers.vanish(1);
  const auto first =
      endings_of({groups[0]}, [](Group& group) { group.all_reduce(at::ones({10})); });
  for (const Wait& wait : waits()) {
    const auto endings = endings_of({groups[0]}, wait.call);
    EXPECT_EQ(to_string(endings[0].code), to_string(ErrorCode::peer_lost))
        << wait.name << ": " << endings[0].what;
  }
}

TEST(ProcessGroupFailure, WaitingForAMissingWorkerEndsInTimeout) {
  for (const std::string name : {"all_reduce", "recv", "barrier"}) {
    Workers workers(2, tests::world_options(Milliseconds(500)));
    Groups groups = workers.make_groups();
    const Wait& wait = *std::find_if(waits().begin(), waits().end(),
                                     [&](const Wait& each) { return each.name == name; });
    const auto endings = endings_of({groups[0]}, wait.call);
    EXPECT_EQ(to_string(endings[0].code), to_string(ErrorCode::timeout)) << endings[0].what;
    EXPECT_THAT(endings[0].what, HasSubstr("500 ms"));
  }
}

// A write to the socket of a lost peer raises SIGPIPE.
TEST(ProcessGroupFailure, SigpipeIsIgnoredUnlessTheProgrammeHandlesIt) {
  const auto handler_after = [](void (*handler)(int)) {
    std::signal(SIGPIPE, handler);
    Workers workers(2, options_for("gloo"));
    workers.make_groups();
    workers.leave();
    return std::signal(SIGPIPE, SIG_IGN);
  };
  const auto own = [](int) {};
  EXPECT_EQ(handler_after(SIG_DFL), SIG_IGN);
  EXPECT_EQ(handler_after(own), static_cast<void (*)(int)>(own));
}

TEST(ProcessGroupFailure, MakingGroupsAfterAPeerIsLostEndsInPeerLost) {
  Workers workers(2, tests::world_options(kTimeout));
  workers.on_each([](World& world) { world.connect(); });
  workers.vanish(1);
  try {
    workers[0].make_groups();
    FAIL() << "it made a group of one";
  } catch (const Error& error) {
    EXPECT_EQ(to_string(error.code()), to_string(ErrorCode::peer_lost)) << error.what();
  }
}

TEST(ProcessGroupFailure, ALostProcessEndsTheWaitsOfAllThreadsOfAnother) {
  Workers workers(2, tests::world_options(kTimeout));
  Groups groups = workers.make_groups(2);
  std::promise<void> waiting;
  auto loser = std::async(std::launch::async, [&] {
    waiting.get_future().wait();
    groups[2].reset();
    groups[3].reset();
    workers.vanish(1);
  });
  std::atomic<int> started{0};
  const auto endings = endings_of({groups[0], groups[1]}, [&](Group& group) {
    if (++started == 2) waiting.set_value();
    group.all_reduce(at::ones({1000}));
  });
  loser.get();
  EXPECT_EQ(to_string(endings[0].code), to_string(ErrorCode::peer_lost)) << endings[0].what;
  EXPECT_TRUE(endings[1].failed);
  for (const Ending& ending : endings) EXPECT_THAT(ending.what, HasSubstr("worker 1"));
}

// Our own backends compare the calls of the ranks before they read a byte.
class Mismatch : public ::testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Carriers, Mismatch, ::testing::Values("shm", "tcp"),
                         [](const auto& each) { return each.param; });

TEST_P(Mismatch, OfOperationsIsNamedOnBothSides) {
  Workers workers(2, options_for(GetParam()));
  const Groups groups = workers.make_groups();
  const auto endings = endings_of(groups, [](Group& group) {
    if (group.rank() == 0)
      group.all_reduce(at::ones({10}));
    else
      group.broadcast(at::ones({10}), 0);
  });
  for (const Ending& ending : endings) {
    EXPECT_EQ(to_string(ending.code), to_string(ErrorCode::invalid_argument)) << ending.what;
    EXPECT_THAT(ending.what, AllOf(HasSubstr("rank 0"), HasSubstr("all_reduce"),
                                   HasSubstr("rank 1"), HasSubstr("broadcast")));
  }
  workers.leave();
}

TEST_P(Mismatch, OfSizesIsNamedOnBothSides) {
  Workers workers(2, options_for(GetParam()));
  const Groups groups = workers.make_groups();
  const auto endings = endings_of(
      groups, [](Group& group) { group.all_reduce(at::ones({group.rank() == 0 ? 500000 : 10})); });
  for (const Ending& ending : endings) {
    EXPECT_EQ(to_string(ending.code), to_string(ErrorCode::invalid_argument)) << ending.what;
    EXPECT_THAT(ending.what, AllOf(HasSubstr("500000"), HasSubstr("10 elements")));
  }
  workers.leave();
}

}  // namespace
}  // namespace trireme::process_group_failure_test
