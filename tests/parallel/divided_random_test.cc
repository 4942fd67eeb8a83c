#include "divided_layers.h"

#include <trireme/parallel/nn/divided_random.h>

namespace trireme::tests::divided_random_test {
namespace {

TEST(DividedRandom, DiffersBetweenRanksInsideAndIsTheSameOutside) {
  std::vector<at::Tensor> inside(2), outside(2), again(2);
  on_ranks(thread_groups(2), [&](Group& group) {
    const auto rank = static_cast<size_t>(group.rank());
    const auto ranks = shared(group);
    ReplicaRandom random(17);
    const ReplicaRandom::Mark mark = random.mark();
    const auto draw = [&] {
      const nn::DividedRandom apart(ranks);
      return torch::dropout(at::ones({100}), 0.5, true);
    };
    inside[rank] = draw();
    outside[rank] = torch::dropout(at::ones({100}), 0.5, true);
    random.restore(mark);
    again[rank] = draw();
  });
  EXPECT_FALSE(at::equal(inside[0], inside[1]));
  EXPECT_TRUE(at::equal(outside[0], outside[1]));
  EXPECT_TRUE(at::equal(inside[0], again[0]) && at::equal(inside[1], again[1]));
}

TEST(DividedRandom, DrawsNothingOnAnAxisOfOneRank) {
  const ReplicaRandom random(17);
  const auto mark = random.mark();
  const nn::DividedRandom apart(nullptr);
  EXPECT_TRUE(at::equal(mark, random.mark()));
}

}  // namespace
}  // namespace trireme::tests::divided_random_test
