// Operations over MPI. The test starts itself again under mpirun, where it is the ranks.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <trireme/comm/mpi/mpi_group.h>
#include <array>
#include <cstdlib>
#include <filesystem>
#include "forecast.h"
#include "ranks.h"

namespace trireme::mpi_ranks_test {
namespace {

constexpr int kRanks = 4;

void expect_blocks(Group& group) {
  const int rank = group.rank(), n = group.size();
  for (const int64_t count : {0, 1, 7, 10000}) {
    const at::Tensor input = at::arange(count * n, at::kFloat) % 13 + rank;
    const at::Tensor sum = at::empty({count});
    group.reduce_scatter(input, sum);
    const at::Tensor whole = (at::arange(count * n, at::kFloat) % 13) * n + n * (n - 1) / 2.0;
    EXPECT_TRUE(sum.equal(whole.narrow(0, rank * count, count))) << count;
    const at::Tensor exchanged = at::empty({n, count});
    group.all_to_all(at::full({n, count}, static_cast<double>(rank)), exchanged);
    const auto [sent, received] = tests::lengths_of(rank, n, count);
    const at::Tensor uneven = at::empty({tests::sum_of(received)});
    group.all_to_all(at::full({tests::sum_of(sent)}, static_cast<double>(rank)), uneven, sent,
                     received);
    int64_t place = 0;
    for (int other = 0; other < n; ++other) {
      const int64_t length = received[static_cast<size_t>(other)];
      const double value = other;
      EXPECT_TRUE(exchanged[other].equal(at::full({count}, value)));
      EXPECT_TRUE(uneven.narrow(0, place, length).equal(at::full({length}, value)));
      place += length;
    }
  }
}

// The longer ones would be written beyond the end of the tensor if MPI were asked to.
void expect_that_differences_are_named(Group& group) {
  const int last = group.size() - 1;
  const std::vector<at::Tensor> sent{at::ones({11}), at::ones({2}), at::ones({10}, at::kInt),
                                     at::ones({2000000}), at::full({10}, 4.0)};
  if (group.rank() == 0) {
    std::vector<WorkPtr> works;
    for (const at::Tensor& tensor : sent) works.push_back(group.send_async(tensor, last, 7));
    for (const WorkPtr& work : works) work->wait();
  } else if (group.rank() == last) {
    for (const char* what : {"11 elements of Float", "2 elements of Float", "10 elements of Int",
                             "2000000 elements of Float"}) {
      std::string error;
      try {
        group.recv(at::zeros({10}), 0, 7);
      } catch (const Error& refusal) {
        error = refusal.what();
      }
      EXPECT_NE(error.find(std::string("rank 0 sent ") + what + " with tag 7"), std::string::npos)
          << error;
    }
    const at::Tensor received = at::zeros({10});
    group.recv(received, 0, 7);
    EXPECT_TRUE(received.equal(sent.back()));
  }
  group.barrier();
}

void expect_messages(Group& group) {
  const int rank = group.rank(), n = group.size(), next = (rank + 1) % n,
            previous = (rank + n - 1) % n;
  // Every rank waits for its send first.
  for (const int64_t count : {0, 3, 3000000}) {
    const at::Tensor sent = at::full({count}, rank + 1.0), received = at::zeros({count});
    const WorkPtr receiving = group.recv_async(received, previous, 3);
    group.send_async(sent, next, 3)->wait();
    receiving->wait();
    EXPECT_TRUE(received.equal(at::full({count}, previous + 1.0)));
  }
  const at::Tensor late = at::zeros({5});
  const WorkPtr receiving = group.recv_async(late, previous, 4);
  EXPECT_FALSE(receiving->is_done());
  EXPECT_FALSE(receiving->wait_for(Milliseconds(20)));
  group.barrier();
  const WorkPtr sending = group.send_async(at::ones({5}), next, 4);
  while (!receiving->wait_for(Milliseconds(1000)) || !sending->is_done()) {
  }
  receiving->wait();
  EXPECT_TRUE(late.equal(at::ones({5})));
}

void expect_groups_of_some_ranks(World& world) {
  const MeshRank place = world.mesh(plan::Mesh({{"data", 2}, {"tensor", kRanks / 2}})).front();
  for (const char* axis : {"data", "tensor"}) {
    Group& group = *place.along(axis);
    expect_blocks(group);
    expect_messages(group);
  }
  const auto group = world.make_group({kRanks - 1, 0}).front();
  const bool member = world.rank() == 0 || world.rank() == kRanks - 1;
  ASSERT_EQ(group != nullptr, member);
  if (!group) return;
  EXPECT_EQ(group->rank(), world.rank() == 0 ? 1 : 0);
  const at::Tensor tensor = at::full({3}, static_cast<double>(world.rank()));
  group->broadcast(tensor, 0);
  EXPECT_TRUE(tensor.equal(at::full({3}, kRanks - 1.0)));
}

void be_a_rank() {
  WorldOptions options = tests::world_options();
  options.backend = "mpi";
  World world = World::join(options);
  ASSERT_EQ(world.size(), kRanks);
  const auto group = world.make_groups().front();
  EXPECT_EQ(group->backend(), "mpi");
  expect_blocks(*group);
  expect_that_differences_are_named(*group);
  expect_messages(*group);
  expect_groups_of_some_ranks(world);
  world.leave();
}

TEST(MpiRanks, ExchangeBlocksAndMessagesInGroupsOfAllAndSomeRanks) {
  if (!comm::mpi_is_compiled_in()) return;
  if (std::getenv("OMPI_COMM_WORLD_RANK") || std::getenv("PMI_RANK")) return be_a_rank();
  if (std::system("command -v mpirun > /dev/null") != 0) return;
  const std::string self = std::filesystem::read_symlink("/proc/self/exe");
  const std::string command = fmt::format(
      "OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 timeout 120 "
      "mpirun -n {} --oversubscribe '{}' --gtest_brief=1 --gtest_filter='MpiRanks.*' < /dev/null",
      kRanks, self);
  EXPECT_EQ(std::system(command.c_str()), 0) << command;
}

}  // namespace
}  // namespace trireme::mpi_ranks_test
