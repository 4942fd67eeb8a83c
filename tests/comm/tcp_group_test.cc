// Our TCP between ranks: every plan and size, ranks with different calls, and peers that are
// killed or stopped.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gmock/gmock.h>

#include <sys/wait.h>
#include <unistd.h>
#include <csignal>
#include <cstring>
#include <future>
#include "ranks.h"

namespace trireme::tcp_group_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using tests::Ending;
using tests::endings_of;
using tests::Groups;
using tests::on_ranks;
using tests::Workers;

WorldOptions tcp_options(Milliseconds timeout = Milliseconds(20000),
                         const std::string& all_reduce = "auto") {
  WorldOptions options = tests::world_options(timeout);
  options.backend = "tcp";
  options.all_reduce = all_reduce;
  return options;
}

class TcpAlgorithms : public ::testing::TestWithParam<std::tuple<std::string, int>> {};

// The size needs many windows and full socket buffers, and no number of chunks divides it.
TEST_P(TcpAlgorithms, AllReduceOfAnySizeGivesTheSum) {
  const auto& [algorithm, size] = GetParam();
  Workers workers(size, tcp_options(Milliseconds(20000), algorithm));
  on_ranks(workers.make_groups(), [n = size](Group& group) {
    for (const int64_t count : {1, 5, 4099, 1000003}) {
      const at::Tensor tensor = (at::arange(count, at::kInt) % 1000 + group.rank());
      group.all_reduce(tensor);
      ASSERT_TRUE(tensor.equal((at::arange(count, at::kInt) % 1000) * n + n * (n - 1) / 2))
          << count;
    }
  });
  workers.leave();
}

INSTANTIATE_TEST_SUITE_P(
    Algorithms, TcpAlgorithms,
    ::testing::Combine(::testing::Values("naive", "direct", "ring", "recursive_doubling",
                                         "halving_doubling", "tree", "hierarchical"),
                       ::testing::Values(2, 3, 4)),
    [](const auto& each) {
      return std::get<0>(each.param) + "_" + std::to_string(std::get<1>(each.param));
    });

TEST(TcpGroup, LargeMessagesMayCross) {
  Workers workers(2, tcp_options());
  on_ranks(workers.make_groups(), [](Group& group) {
    const int other = 1 - group.rank();
    const at::Tensor mine = at::full({3000000}, group.rank() + 1.0), theirs = at::zeros({3000000});
    const WorkPtr receiving = group.recv_async(theirs, other),
                  sending = group.send_async(mine, other);
    group.barrier();
    sending->wait();
    receiving->wait();
    EXPECT_TRUE(theirs.equal(at::full({3000000}, other + 1.0)));
  });
  workers.leave();
}

TEST(TcpGroup, CollectivesDoNotWaitForMessagesWithoutAReceive) {
  Workers workers(2, tcp_options());
  on_ranks(workers.make_groups(), [](Group& group) {
    const at::Tensor large = at::full({3000000}, 7.0);
    const WorkPtr sending = group.rank() == 0 ? group.send_async(large, 1, 3) : finished_work();
    group.all_reduce(at::ones({100000}));
    if (group.rank() == 1) {
      const at::Tensor received = at::zeros({3000000});
      group.recv(received, 0, 3);
      EXPECT_TRUE(received.equal(large));
    }
    sending->wait();
  });
  workers.leave();
}

TEST(TcpGroup, AMessageOfAnotherSizeIsNamed) {
  Workers workers(2, tcp_options());
  const auto endings = endings_of(workers.make_groups(), [](Group& group) {
    if (group.rank() == 0) group.send(at::ones({11}), 1);
    if (group.rank() == 1) group.recv(at::ones({10}), 0);
  });
  EXPECT_FALSE(endings[0].failed);
  EXPECT_EQ(to_string(endings[1].code), to_string(ErrorCode::invalid_argument));
  EXPECT_THAT(endings[1].what, AllOf(HasSubstr("rank 0 sent 11 elements of Float"),
                                     HasSubstr("10 elements of Float")));
  workers.leave();
}

TEST(TcpGroup, DestroyingTheGroupEndsOperationsInProgress) {
  Workers workers(2, tcp_options());
  Groups groups = workers.make_groups();
  const at::Tensor tensor = at::ones({10});
  const WorkPtr first = groups[0]->all_reduce_async(tensor),
                second = groups[0]->all_reduce_async(tensor);
  groups[0].reset();
  for (const WorkPtr* work : {&first, &second}) EXPECT_THROW((*work)->wait(), Error);
}

TEST(TcpGroup, MoreRanksThanCoresStillWork) {
  Workers workers(8, tcp_options());
  on_ranks(workers.make_groups(), [](Group& group) {
    for (int i = 0; i < 50; ++i) {
      const at::Tensor tensor = at::full({1024}, i);
      group.all_reduce(tensor);
      ASSERT_TRUE(tensor.equal(at::full({1024}, 8 * i)));
    }
  });
  workers.leave();
}

class TcpDifference
    : public ::testing::TestWithParam<std::pair<std::string, std::function<void(Group&)>>> {};

TEST_P(TcpDifference, IsNamedOnEveryRank) {
  Workers workers(3, tcp_options());
  const Groups groups = workers.make_groups();
  for (const Ending& ending : endings_of(groups, GetParam().second)) {
    EXPECT_EQ(to_string(ending.code), to_string(ErrorCode::invalid_argument)) << ending.what;
    EXPECT_THAT(ending.what, HasSubstr("rank 2 calls"));
  }
  // The bytes left on the connections belong to no operation any more.
  for (const Ending& ending : endings_of(groups, [](Group& group) { group.barrier(); }))
    EXPECT_THAT(ending.what, HasSubstr("rank 2 calls"));
}

const std::vector<std::pair<std::string, std::function<void(Group&)>>> kDifferences{
    {"operation",
     [](Group& group) {
       if (group.rank() == 2)
         group.broadcast(at::ones({10}), 0);
       else
         group.all_reduce(at::ones({10}));
     }},
    {"barrier",
     [](Group& group) {
       if (group.rank() == 2)
         group.barrier();
       else
         group.all_reduce(at::ones({2000000}));
     }},
    {"size", [](Group& group) { group.all_reduce(at::ones({group.rank() == 2 ? 11 : 10})); }},
    {"large_size",
     [](Group& group) { group.all_reduce(at::ones({group.rank() == 2 ? 1000000 : 2000000})); }},
    {"type",
     [](Group& group) {
       group.all_reduce(at::ones({10}, group.rank() == 2 ? at::kDouble : at::kFloat));
     }},
    {"reduction",
     [](Group& group) {
       group.all_reduce(at::ones({10}), group.rank() == 2 ? ReduceOp::max : ReduceOp::min);
     }},
    {"root", [](Group& group) { group.broadcast(at::ones({10}), group.rank() == 2 ? 1 : 0); }},
};
INSTANTIATE_TEST_SUITE_P(Differences, TcpDifference, ::testing::ValuesIn(kDifferences),
                         [](const auto& each) { return each.param.first; });

TEST(TcpGroup, ADifferenceNamesTheCallsOfBothRanks) {
  Workers workers(2, tcp_options());
  const auto endings = endings_of(workers.make_groups(), [](Group& group) {
    if (group.rank() == 0)
      group.all_reduce(at::ones({10}));
    else
      group.all_gather(at::ones({5}, at::kLong), at::ones({10}, at::kLong));
  });
  for (const Ending& ending : endings)
    EXPECT_THAT(ending.what,
                AllOf(HasSubstr("rank 0 calls all_reduce with 10 elements (Float, sum"),
                      HasSubstr("rank 1 calls all_gather with 10 elements (Long")));
}

// A worker in a process of its own. It is forked before this process has connected to anything.
class WorkerProcess {
 public:
  explicit WorkerProcess(const std::function<void(Environment)>& body) {
    int ends[2];
    if (::pipe(ends) != 0) throw std::runtime_error("no pipe");
    pid_ = ::fork();
    if (pid_ == 0) {
      ::close(ends[1]);
      char rendezvous[128] = "";
      if (::read(ends[0], rendezvous, sizeof rendezvous - 1) <= 0) ::_exit(1);
      try {
        body(Environment({{"TRIREME_WORKER", "1"},
                          {"TRIREME_WORKERS", "3"},
                          {"TRIREME_LOCAL_WORKER", "1"},
                          {"TRIREME_LOCAL_WORKERS", "3"},
                          {"TRIREME_RENDEZVOUS", rendezvous},
                          {"TRIREME_JOB_TOKEN", Workers::kToken}}));
      } catch (const std::exception&) {
      }
      ::_exit(0);
    }
    ::close(ends[0]);
    to_child_ = ends[1];
  }
  ~WorkerProcess() {
    ::close(to_child_);
    end(SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  void begin(const net::Endpoint& rendezvous) {
    const std::string text = rendezvous.describe();
    ASSERT_EQ(::write(to_child_, text.data(), text.size()), static_cast<ssize_t>(text.size()));
  }
  void end(int signal) const { ::kill(pid_, signal); }

 private:
  pid_t pid_;
  int to_child_;
};

// Workers 0 and 2 are threads here. Worker 1 is another process, which gets `signal` in the middle
// of collectives.
std::vector<Ending> endings_after(int signal, Milliseconds timeout, Milliseconds& took) {
  const WorldOptions options = tcp_options(timeout);
  const auto collectives = [](Group& group) {
    for (const at::Tensor tensor = at::ones({20000});;) group.all_reduce(tensor.fill_(1));
  };
  WorkerProcess process([&](Environment environment) {
    at::set_num_threads(1);
    World world = World::join(options, environment);
    collectives(*world.make_groups()[0]);
  });
  Workers workers(3, options);
  process.begin(workers.coordinator().endpoint());
  Groups groups(2);
  tests::on_threads(
      2, [&](int i) { groups[static_cast<size_t>(i)] = workers[2 * i].make_groups()[0]; });
  std::atomic<int> rounds{0};
  std::chrono::steady_clock::time_point hit;
  std::thread hitter([&] {
    while (rounds < 20) std::this_thread::yield();
    hit = std::chrono::steady_clock::now();
    process.end(signal);
  });
  const auto endings = endings_of(groups, [&](Group& group) {
    for (const at::Tensor tensor = at::ones({20000});; ++rounds) group.all_reduce(tensor.fill_(1));
  });
  hitter.join();
  took = std::chrono::duration_cast<Milliseconds>(std::chrono::steady_clock::now() - hit);
  return endings;
}

TEST(TcpGroup, AKilledPeerIsNamedAtOnce) {
  Milliseconds took{0};
  for (const Ending& ending : endings_after(SIGKILL, Milliseconds(20000), took)) {
    EXPECT_EQ(to_string(ending.code), to_string(ErrorCode::peer_lost)) << ending.what;
    EXPECT_THAT(ending.what, HasSubstr("worker 1"));
  }
  EXPECT_LT(took, Milliseconds(1500));
}

TEST(TcpGroup, AStoppedPeerIsNamedAtTheDeadline) {
  Milliseconds took{0};
  for (const Ending& ending : endings_after(SIGSTOP, Milliseconds(1500), took)) {
    EXPECT_EQ(to_string(ending.code), to_string(ErrorCode::timeout)) << ending.what;
    EXPECT_THAT(ending.what, HasSubstr("rank 1"));
  }
  EXPECT_LT(took, Milliseconds(6000));
}

}  // namespace
}  // namespace trireme::tcp_group_test
