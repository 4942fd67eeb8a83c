// Every plan run by threads: every algorithm, world size, element count and type, also in pieces.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>

#include "../base/expect_error.h"
#include "ranks.h"
#include "whole_numbers.h"

namespace trireme::thread_plans_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using tests::Groups;
using tests::on_ranks;
using tests::part_of;

struct Case {
  plan::Algorithm algorithm;
  int size;
  std::vector<int> hosts;
};

std::string name_of(const ::testing::TestParamInfo<Case>& info) {
  std::string name = fmt::format("{}_{}", plan::to_string(info.param.algorithm), info.param.size);
  if (!info.param.hosts.empty()) name += "_hosts_";
  for (const int host : info.param.hosts) name += std::to_string(host);
  return name;
}

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const plan::Algorithm algorithm : plan::all_algorithms())
    for (const int size : {1, 2, 3, 4, 5, 7, 8}) all.push_back({algorithm, size, {}});
  for (const std::vector<int>& hosts :
       {std::vector<int>{0, 1}, {0, 0, 1}, {0, 1, 0, 1}, {0, 0, 0, 1, 2}, {0, 0, 1, 1, 1, 2, 2}})
    all.push_back({plan::Algorithm::hierarchical, static_cast<int>(hosts.size()), hosts});
  return all;
}

bool makes(plan::Collective collective, plan::Algorithm algorithm) {
  const auto fits = plan::algorithms_of(collective);
  return std::find(fits.begin(), fits.end(), algorithm) != fits.end();
}

class ThreadPlans : public ::testing::TestWithParam<Case> {
 protected:
  ThreadPlans() : size_(GetParam().size) {
    comm::ThreadGroupOptions options;
    for (const plan::Collective collective : plan::all_collectives())
      if (makes(collective)) options.table.always(collective, GetParam().algorithm);
    options.hosts = GetParam().hosts;
    options.timeout = Milliseconds(20000);
    groups_ = comm::make_thread_groups(size_, options);
  }
  bool makes(plan::Collective collective) const {
    return thread_plans_test::makes(collective, GetParam().algorithm);
  }
  std::vector<int64_t> counts() const {
    return {0, 1, 2, size_ - 1, size_, size_ + 1, 1000, 10000};
  }

  int size_;
  Groups groups_;
};

constexpr at::ScalarType kTypes[] = {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16,
                                     at::kInt,   at::kLong,   at::kByte};

at::Tensor sum_of(int size, int64_t count, at::ScalarType type) {
  at::Tensor sum = part_of(0, count, at::kLong);
  for (int rank = 1; rank < size; ++rank) sum += part_of(rank, count, at::kLong);
  return sum.to(type);
}

TEST_P(ThreadPlans, GiveTheSumOnEveryRank) {
  on_ranks(groups_, [&](Group& group) {
    for (const at::ScalarType type : kTypes)
      for (const int64_t count : counts()) {
        const at::Tensor tensor = part_of(group.rank(), count, type);
        group.all_reduce(tensor);
        ASSERT_TRUE(tensor.equal(sum_of(size_, count, type)))
            << count << " x " << c10::toString(type);
      }
  });
}

TEST_P(ThreadPlans, GiveEachRankItsBlockOfTheSum) {
  if (!makes(plan::Collective::reduce_scatter)) return;
  on_ranks(groups_, [&](Group& group) {
    for (const at::ScalarType type : kTypes)
      for (const int64_t count : counts()) {
        const at::Tensor input = part_of(group.rank(), count * size_, type);
        const at::Tensor output = at::empty({count}, type);
        group.reduce_scatter(input, output);
        ASSERT_TRUE(output.equal(
            sum_of(size_, count * size_, type).narrow(0, group.rank() * count, count)))
            << count << " " << type;
        ASSERT_TRUE(input.equal(part_of(group.rank(), count * size_, type)))
            << "the input is only read";
        if (count == 0) continue;
        // The block of another rank in the input.
        const at::Tensor own = input.narrow(0, (group.rank() + 1) % size_ * count, count);
        group.reduce_scatter(input, own);
        ASSERT_TRUE(own.equal(output)) << "into its input, " << count << " " << type;
      }
  });
}

TEST_P(ThreadPlans, CollectBlocksInRankOrder) {
  if (!makes(plan::Collective::all_gather)) return;
  on_ranks(groups_, [&](Group& group) {
    for (const at::ScalarType type : kTypes)
      for (const int64_t count : counts()) {
        std::vector<at::Tensor> parts;
        for (int rank = 0; rank < size_; ++rank) parts.push_back(part_of(rank, count, type));
        const at::Tensor output = at::empty({count * size_}, type);
        group.all_gather(parts[static_cast<size_t>(group.rank())], output);
        ASSERT_TRUE(output.equal(at::cat(parts))) << count << " x " << c10::toString(type);
      }
  });
}

TEST_P(ThreadPlans, HandOutTheTensorOfEveryRoot) {
  if (!makes(plan::Collective::broadcast)) return;
  on_ranks(groups_, [&](Group& group) {
    for (int root = 0; root < size_; ++root)
      for (const int64_t count : counts()) {
        const at::Tensor tensor = part_of(group.rank(), count, at::kFloat);
        group.broadcast(tensor, root);
        ASSERT_TRUE(tensor.equal(part_of(root, count, at::kFloat))) << count << " from " << root;
      }
  });
}

// Numbers whose sum depends on the order.
TEST_P(ThreadPlans, LeaveTheSameBitsOnAllRanksAndInEveryRun) {
  for (const at::ScalarType type : {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16}) {
    for (const int64_t count : {1, 1000, 20000}) {
      std::vector<at::Tensor> parts, sums(groups_.size());
      for (size_t rank = 0; rank < groups_.size(); ++rank)
        parts.push_back(
            at::randn({count}, at::detail::createCPUGenerator(rank), at::kFloat).to(type));
      for (int repetition = 0; repetition < 3; ++repetition) {
        on_ranks(groups_, [&](Group& group) {
          const auto rank = static_cast<size_t>(group.rank());
          const at::Tensor sum = parts[rank].clone();
          group.all_reduce(sum);
          if (repetition == 0) sums[rank] = sum;
          EXPECT_EQ(std::memcmp(sum.const_data_ptr(), sums[rank].const_data_ptr(), sum.nbytes()),
                    0)
              << "another sum in another run";
        });
      }
      for (const at::Tensor& sum : sums)
        EXPECT_EQ(std::memcmp(sum.const_data_ptr(), sums[0].const_data_ptr(), sum.nbytes()), 0);
      if (size_ == 1) continue;
      at::Tensor expected = parts[0].to(at::kDouble);
      for (size_t rank = 1; rank < parts.size(); ++rank)
        expected = expected + parts[rank].to(at::kDouble);
      const double tolerance = type == at::kBFloat16 ? 0.3 : type == at::kHalf ? 0.05 : 1e-4;
      EXPECT_LT((sums[0].to(at::kDouble) - expected).abs().max().item<double>(), tolerance);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Algorithms, ThreadPlans, ::testing::ValuesIn(cases()), name_of);

// The bits of a sum show which plan made it: a chain of additions from each chunk's neighbour is
// not a sum in rank order.
TEST(ThreadPlanChoice, FollowsTheTableBySize) {
  comm::ThreadGroupOptions options;
  options.table.set({"threads", plan::Collective::all_reduce, 4, 1},
                    {{0, plan::Algorithm::naive}, {4096, plan::Algorithm::ring}});
  const Groups chosen = comm::make_thread_groups(4, options);
  const auto sum_by = [](const Groups& groups, int64_t count) {
    std::vector<at::Tensor> sums(groups.size());
    on_ranks(groups, [&](Group& group) {
      const auto rank = static_cast<size_t>(group.rank());
      sums[rank] = at::randn({count}, at::detail::createCPUGenerator(rank + 1), at::kFloat);
      group.all_reduce(sums[rank]);
    });
    return sums[0];
  };
  const Groups naive = tests::thread_groups(4, plan::Algorithm::naive),
               ring = tests::thread_groups(4, plan::Algorithm::ring);
  for (const int64_t count : {900, 1100}) {
    EXPECT_FALSE(sum_by(naive, count).equal(sum_by(ring, count)));
    EXPECT_TRUE(sum_by(chosen, count).equal(sum_by(count < 1024 ? naive : ring, count))) << count;
  }
}

class TemporaryTable {
 public:
  explicit TemporaryTable(const std::string& text)
      : path_(::testing::TempDir() + fmt::format("table-{}-{}.json", getpid(), count_++)) {
    std::ofstream(path_) << text;
  }
  ~TemporaryTable() { std::filesystem::remove(path_); }
  const std::string& path() const { return path_; }

 private:
  static inline int count_ = 0;
  std::string path_;
};

std::string table_of(plan::Algorithm algorithm) {
  plan::CollectiveTable table;
  table.set({"tcp", plan::Collective::all_reduce, 3, 1}, {{0, algorithm}});
  return table.to_text();
}

TEST(WorldTable, IsReadAndCheckedBeforeAnythingConnects) {
  WorldOptions options;
  options.table = "/no/such/table.json";
  const auto join = [&] { World::join(options, Environment()); };
  EXPECT_THAT(message_of(ErrorCode::not_found, join), HasSubstr("/no/such/table.json"));
  const TemporaryTable broken(R"({"rows": [{"path":"tcp"}]})");
  options.table = broken.path();
  EXPECT_THAT(message_of(ErrorCode::invalid_argument, join),
              AllOf(HasSubstr(broken.path()), HasSubstr("row 0")));
  options = {};
  options.all_reduce = "rign";
  EXPECT_THAT(message_of(ErrorCode::invalid_argument, join),
              AllOf(HasSubstr("'rign'"), HasSubstr("recursive_doubling, halving_doubling")));
}

// The bits show which plan was run; they do not depend on the backend.
at::Tensor ordered_sum(const Groups& groups) {
  std::vector<at::Tensor> sums(groups.size());
  on_ranks(groups, [&](Group& group) {
    const auto rank = static_cast<size_t>(group.rank());
    sums[rank] = at::randn({1000}, at::detail::createCPUGenerator(rank + 1), at::kFloat);
    group.all_reduce(sums[rank]);
  });
  return sums[0];
}

TEST(WorldTable, OfRankZeroIsUsedByAllRanks) {
  const at::Tensor by_naive = ordered_sum(tests::thread_groups(3, plan::Algorithm::naive));
  const at::Tensor by_ring = ordered_sum(tests::thread_groups(3, plan::Algorithm::ring));
  ASSERT_FALSE(by_naive.equal(by_ring));
  const TemporaryTable naive(table_of(plan::Algorithm::naive)),
      ring(table_of(plan::Algorithm::ring));
  for (const bool first_has_ring : {false, true}) {
    tests::Workers job(3);
    std::vector<std::unique_ptr<World>> worlds;
    for (int worker = 0; worker < 3; ++worker) {
      WorldOptions options = tests::world_options();
      options.backend = "tcp";
      if (worker < 2) options.table = ((worker == 0) == first_has_ring ? ring : naive).path();
      worlds.push_back(std::make_unique<World>(World::join(options, job.environment(worker, 3))));
    }
    Groups groups(3);
    tests::on_threads(3, [&](int worker) {
      const auto i = static_cast<size_t>(worker);
      groups[i] = worlds[i]->make_groups()[0];
    });
    EXPECT_TRUE(ordered_sum(groups).equal(first_has_ring ? by_ring : by_naive));
    tests::on_threads(3, [&](int worker) { worlds[static_cast<size_t>(worker)]->leave(); });
  }
}

}  // namespace
}  // namespace trireme::thread_plans_test
