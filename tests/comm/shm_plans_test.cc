// Every plan between processes of one host gives the result of threads, bit for bit, and the table
// chooses the plan.
#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include <trireme/comm/host/host_team.h>
#include <algorithm>
#include <chrono>
#include <cstring>
#include <map>
#include <mutex>
#include <tuple>

#include "ranks.h"

namespace trireme::shm_plans_test {
namespace {

using plan::Algorithm;
using ::testing::AllOf;
using ::testing::HasSubstr;
using tests::always;
using tests::Groups;
using tests::on_ranks;

struct Case {
  Algorithm algorithm;
  int workers, replicas;
  int size() const { return workers * replicas; }
};

std::string name_of(const ::testing::TestParamInfo<Case>& info) {
  return fmt::format("{}_{}x{}", plan::to_string(info.param.algorithm), info.param.workers,
                     info.param.replicas);
}

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const Algorithm algorithm : plan::all_algorithms())
    for (const auto& [workers, replicas] : {std::pair{2, 1}, {3, 1}, {4, 1}, {2, 2}})
      all.push_back({algorithm, workers, replicas});
  return all;
}

Groups groups_by(tests::Workers& workers, int replicas, const plan::CollectiveTable& table) {
  workers.on_each([&](World& world) {
    world.connect(replicas);
    world.set_table(table);
  });
  return workers.make_groups(replicas);
}

Groups threads_by(int size, const plan::CollectiveTable& table) {
  return comm::make_thread_groups(size, {.table = table, .timeout = Milliseconds(20000)});
}

// Values of very different sizes: their sum depends on the order. They are copied, because drawing
// them takes longer than a plan.
at::Tensor part_of(int rank, int64_t count, at::ScalarType type) {
  static std::mutex mutex;
  static std::map<std::tuple<int, int64_t, at::ScalarType>, at::Tensor> known;
  const std::lock_guard lock(mutex);
  at::Tensor& values = known[{rank, count, type}];
  if (!values.defined()) {
    const at::Generator generator =
        at::detail::createCPUGenerator(static_cast<uint64_t>(rank) + 1);
    values = (at::randn({count}, generator, at::kFloat) *
              at::exp2(at::randint(-6, 6, {count}, generator).to(at::kFloat)))
                 .to(type);
  }
  return values.clone();
}

// The results of body(group) on each rank.
template <typename Body>
std::vector<at::Tensor> outcomes(const Groups& groups, Body body) {
  std::vector<at::Tensor> results(groups.size());
  on_ranks(groups,
           [&](Group& group) { results[static_cast<size_t>(group.rank())] = body(group); });
  return results;
}

void expect_same_bits(const std::vector<at::Tensor>& actual,
                      const std::vector<at::Tensor>& expected, const std::string& what) {
  ASSERT_EQ(actual.size(), expected.size());
  for (size_t rank = 0; rank < actual.size(); ++rank) {
    ASSERT_EQ(actual[rank].nbytes(), expected[rank].nbytes());
    EXPECT_TRUE(actual[rank].nbytes() == 0 ||
                std::memcmp(actual[rank].const_data_ptr(), expected[rank].const_data_ptr(),
                            actual[rank].nbytes()) == 0)
        << what << " on rank " << rank;
  }
}

class ShmPlans : public ::testing::TestWithParam<Case> {
 protected:
  ShmPlans() : size_(GetParam().size()), workers_(GetParam().workers) {
    const plan::CollectiveTable table = always(GetParam().algorithm);
    groups_ = groups_by(workers_, GetParam().replicas, table);
    threads_ = threads_by(size_, table);
  }
  void TearDown() override { workers_.leave(); }
  // Runs `body` on the groups of processes and on those of threads; both must give
  // the same results.
  template <typename Body>
  void expect_what_threads_leave(const std::string& what, Body body) {
    expect_same_bits(outcomes(groups_, body), outcomes(threads_, body), what);
  }

  int size_;
  tests::Workers workers_;
  Groups groups_, threads_;
};

constexpr at::ScalarType kTypes[] = {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16};
// The counts range from none for most ranks to several pieces of staging memory. The large ones do
// not divide evenly.
constexpr int64_t kCounts[] = {0, 1, 2, 3, 5, 17, 1000, 10007, 262147, 700001};

TEST_P(ShmPlans, RunOnTheShmBackend) { EXPECT_EQ(groups_[0]->backend(), "shm"); }

TEST_P(ShmPlans, SumWithTheBitsOfThePlan) {
  for (const at::ScalarType type : kTypes)
    for (const int64_t count : kCounts)
      expect_what_threads_leave(fmt::format("{} x {}", count, c10::toString(type)),
                                [&](Group& group) {
                                  const at::Tensor tensor = part_of(group.rank(), count, type);
                                  group.all_reduce(tensor);
                                  return tensor;
                                });
}

TEST_P(ShmPlans, DoEveryReduction) {
  for (const ReduceOp op : {ReduceOp::mean, ReduceOp::max, ReduceOp::min})
    for (const int64_t count : {1, 1001, 300007})
      expect_what_threads_leave(fmt::format("{} of {}", to_string(op), count), [&](Group& group) {
        const at::Tensor tensor = part_of(group.rank(), count, at::kFloat);
        group.all_reduce(tensor, op);
        return tensor;
      });
}

TEST_P(ShmPlans, ReduceSharedTensorsInPlaceWithTheSameBits) {
  for (const int64_t count : {1, 777, 400003})
    for (const ReduceOp op : {ReduceOp::sum, ReduceOp::mean})
      expect_what_threads_leave(fmt::format("{} of {}", to_string(op), count), [&](Group& group) {
        const at::Tensor whole = group.shared_tensor({count + 10}, at::kFloat);
        whole.fill_(-1);
        const at::Tensor tensor = whole.narrow(0, 7, count);
        tensor.copy_(part_of(group.rank(), count, at::kFloat));
        group.all_reduce(tensor, op);
        EXPECT_EQ(whole[6].item<float>(), -1);
        EXPECT_EQ(whole[count + 7].item<float>(), -1);
        return tensor;
      });
}

TEST_P(ShmPlans, GiveEachRankItsBlockOfTheSum) {
  for (const int64_t count : {0, 1, 1000, 150001})
    for (const ReduceOp op : {ReduceOp::sum, ReduceOp::mean})
      expect_what_threads_leave(fmt::format("{} of {}", to_string(op), count), [&](Group& group) {
        const at::Tensor input = part_of(group.rank(), count * size_, at::kFloat),
                         before = input.clone();
        const at::Tensor output = at::empty({count});
        group.reduce_scatter(input, output, op);
        EXPECT_TRUE(input.equal(before)) << "the input is only read";
        // The block of another rank in the input.
        const at::Tensor own = input.narrow(0, (group.rank() + 1) % size_ * count, count);
        group.reduce_scatter(input, own, op);
        EXPECT_TRUE(own.equal(output)) << "into its input";
        return output;
      });
}

TEST_P(ShmPlans, CollectBlocksAndHandOutTensors) {
  on_ranks(groups_, [&](Group& group) {
    for (const int64_t count : {0, 1, 2, 1000, 150001}) {
      std::vector<at::Tensor> parts;
      for (int rank = 0; rank < size_; ++rank) parts.push_back(part_of(rank, count, at::kFloat));
      const at::Tensor all = at::empty({count * size_});
      group.all_gather(parts[static_cast<size_t>(group.rank())], all);
      EXPECT_TRUE(all.equal(at::cat(parts))) << count;
      for (int root = 0; root < size_; ++root) {
        const at::Tensor tensor = part_of(group.rank(), count, at::kFloat);
        group.broadcast(tensor, root);
        EXPECT_TRUE(tensor.equal(parts[static_cast<size_t>(root)])) << count << " from " << root;
      }
    }
  });
}

// The collectives run one after the other through the same staging memory.
TEST_P(ShmPlans, MixWithOtherCollectives) {
  on_ranks(groups_, [&](Group& group) {
    for (int repeat = 0; repeat < 20; ++repeat) {
      const int64_t count = 1 + repeat * 20011;
      const at::Tensor sum = at::full({count}, group.rank() + 1, at::kFloat),
                       root = at::full({count}, group.rank(), at::kInt);
      const at::Tensor all = at::empty({3 * size_}, at::kLong);
      group.all_reduce(sum);
      group.broadcast(root, repeat % size_);
      group.gather(at::full({3}, group.rank(), at::kLong), all, 0);
      group.barrier();
      ASSERT_TRUE(sum.equal(at::full({count}, size_ * (size_ + 1) / 2, at::kFloat))) << repeat;
      ASSERT_TRUE(root.equal(at::full({count}, repeat % size_, at::kInt))) << repeat;
      ASSERT_TRUE(group.rank() != 0 ||
                  all.equal(at::arange(size_, at::kLong).repeat_interleave(3)))
          << repeat;
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Algorithms, ShmPlans, ::testing::ValuesIn(cases()), name_of);

std::vector<at::Tensor> sums(const Groups& groups, int64_t count) {
  return outcomes(groups, [&](Group& group) {
    const at::Tensor tensor = part_of(group.rank(), count, at::kFloat);
    group.all_reduce(tensor);
    return tensor;
  });
}

TEST(ShmPlanChoice, FollowsTheTableBySize) {
  plan::CollectiveTable table;
  table.set({"shm", plan::Collective::all_reduce, 4, 1},
            {{0, Algorithm::tree}, {4096, Algorithm::ring}, {1 << 20, Algorithm::direct}});
  table.set({"threads", plan::Collective::all_reduce, 4, 1}, {{0, Algorithm::halving_doubling}});
  tests::Workers workers(4);
  const Groups chosen =
      groups_by(workers, 1, plan::CollectiveTable::parse(table.to_text(), "table.json"));
  for (const auto& [count, algorithm] :
       {std::pair{1023, Algorithm::tree}, {1024, Algorithm::ring}, {300000, Algorithm::direct}}) {
    expect_same_bits(sums(chosen, count), sums(tests::thread_groups(4, algorithm), count),
                     fmt::format("{} elements", count));
    const at::Tensor sum = sums(chosen, count)[0];
    for (const Algorithm other :
         {Algorithm::tree, Algorithm::ring, Algorithm::direct, Algorithm::halving_doubling})
      EXPECT_EQ(sum.equal(sums(tests::thread_groups(4, other), count)[0]), other == algorithm)
          << count;
  }
  workers.leave();
}

TEST(ShmPlanChoice, FollowsTheRequestedName) {
  WorldOptions options = tests::world_options();
  options.backend = "shm";
  options.all_reduce = "ring";
  tests::Workers workers(3, options);
  const Groups groups = workers.make_groups();
  for (const int64_t count : {100, 100000}) {
    expect_same_bits(sums(groups, count), sums(tests::thread_groups(3, Algorithm::ring), count),
                     fmt::format("{} elements", count));
    EXPECT_FALSE(
        sums(groups, count)[0].equal(sums(tests::thread_groups(3, Algorithm::direct), count)[0]));
  }
  workers.leave();
}

TEST(ShmPlanChoice, ReadsEveryOtherRankWithoutATable) {
  tests::Workers workers(3);
  const Groups groups = workers.make_groups();
  for (const int64_t count : {10, 1000, 10000, 1000000})
    expect_same_bits(sums(groups, count), sums(tests::thread_groups(3, Algorithm::naive), count),
                     fmt::format("{} elements", count));
  workers.leave();
}

TEST(ShmPlanChoice, IsNamedOnBothRanksIfItDiffers) {
  tests::Workers workers(2);
  workers.on_each([](World& world) {
    world.connect();
    world.set_table(always(world.worker() == 0 ? Algorithm::naive : Algorithm::ring));
  });
  const Groups groups = workers.make_groups();
  const auto endings =
      tests::endings_of(groups, [](Group& group) { group.all_reduce(at::ones({1000})); });
  for (const tests::Ending& ending : endings) {
    EXPECT_EQ(to_string(ending.code), to_string(ErrorCode::invalid_argument)) << ending.what;
    EXPECT_THAT(ending.what, AllOf(HasSubstr("rank 0"), HasSubstr("sum by naive"),
                                   HasSubstr("rank 1"), HasSubstr("sum by ring")));
  }
}

// The lost peer has agreed to the call, but comes to no round.
TEST(ShmPlanFailure, APeerLostInTheMiddleEndsThePlanOfTheOthers) {
  tests::Workers workers(3);
  Groups groups = groups_by(workers, 1, always(Algorithm::ring));
  std::vector<tests::Ending> endings(groups.size());
  const auto start = std::chrono::steady_clock::now();
  tests::on_threads(3, [&](int rank) {
    const auto i = static_cast<size_t>(rank);
    if (rank == 1) {
      groups[i]->host_team()->meet({"all_reduce", 1000, "Float, sum by ring"});
      groups[i].reset();
      workers.vanish(rank);
      return;
    }
    try {
      groups[i]->all_reduce(at::ones({1000}));
    } catch (const Error& error) {
      endings[i] = {true, error.code(), error.what()};
    }
  });
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(3));
  for (const size_t survivor : {0, 2}) {
    EXPECT_EQ(to_string(endings[survivor].code), to_string(ErrorCode::peer_lost))
        << endings[survivor].what;
    EXPECT_THAT(endings[survivor].what, HasSubstr("worker 1"));
  }
}

}  // namespace
}  // namespace trireme::shm_plans_test
