// Replicas that differ are named.
#include "jobs.h"
// This header must come after those of torch.
#include <gmock/gmock.h>

#include <trireme/train/replica_check.h>
#include <mutex>

namespace trireme::replica_check_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

std::vector<NamedTensor> parameters() {
  return {{"in.weight", at::arange(0, 70'000, at::kFloat).view({7, 10'000})},
          {"steps", at::arange(5, at::kLong)},
          {"empty", at::zeros({0})},
          {"out.weight", at::linspace(-1, 1, 11, at::kDouble)}};
}

// Returns the answer that all `count` ranks get after one bit was flipped in the parameters of
// each rank in `broken`.
std::string verdict(int count, const std::vector<int>& broken) {
  std::vector<std::string> verdicts(static_cast<size_t>(count));
  tests::on_ranks(tests::thread_groups(count), [&](Group& group) {
    const std::vector<NamedTensor> mine = parameters();
    if (std::count(broken.begin(), broken.end(), group.rank()) > 0)
      flip_a_bit(mine, static_cast<uint64_t>(group.rank()));
    verdicts[static_cast<size_t>(group.rank())] = differing_replicas(mine, group);
  });
  for (const std::string& each : verdicts)
    EXPECT_EQ(each, verdicts[0]) << "every rank gets the same answer";
  return verdicts[0];
}

TEST(ReplicaCheck, FindsNothingWhereAllAreAlike) {
  for (const int count : {1, 2, 3}) EXPECT_EQ(verdict(count, {}), "");
}

TEST(ReplicaCheck, NamesRanksThatDifferFromTheMajority) {
  EXPECT_THAT(
      verdict(3, {1}),
      AllOf(HasSubstr("the parameters of rank 1 differ from those of the other 2 replicas"),
            HasSubstr("weight' is the first")));
  EXPECT_THAT(verdict(5, {0, 3}),
              HasSubstr("ranks 0, 3 differ from those of the other 3 replicas"));
}

TEST(ReplicaCheck, OfTwoRanksSaysThatTheyDiffer) {
  EXPECT_THAT(
      verdict(2, {1}),
      HasSubstr("rank 0 and rank 1 differ from each other, and no majority tells which is right"));
}

TEST(ReplicaCheck, FlipsOneBitOfOneElementPastVersionCounters) {
  for (const auto type : {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16}) {
    for (uint64_t seed = 0; seed < 20; ++seed) {
      const std::vector<NamedTensor> tensors = {{"a", at::ones({4, 5}, type)},
                                                {"b", at::ones({3}, type)}};
      const auto versions = std::pair(tensors[0].tensor._version(), tensors[1].tensor._version());
      const std::string name = flip_a_bit(tensors, seed);
      const at::Tensor all =
          at::cat({tensors[0].tensor.flatten(), tensors[1].tensor}).to(at::kDouble);
      EXPECT_EQ((all != 1).sum().item<int64_t>(), 1) << name;
      EXPECT_TRUE(all.isfinite().all().item<bool>());
      EXPECT_EQ(versions, std::pair(tensors[0].tensor._version(), tensors[1].tensor._version()));
    }
  }
  EXPECT_EQ(flip_a_bit({{"steps", at::arange(3)}}, 1), "") << "there is nothing to flip";
}

}  // namespace
}  // namespace trireme::replica_check_test
