// Buckets that leave while backward runs: the same gradients, in an order that rank 0 saw.
#include "models.h"
// After torch.h.
#include <gmock/gmock.h>

#include <trireme/parallel/gradient_watch.h>

namespace trireme {
namespace {

using testing::Data;
using testing::data_of;
using testing::difference;
using testing::Mlp;
using testing::on_ranks;
using testing::Workers;

TEST(GradientWatch, TellsEachParameterWhenItsGradientIsThere) {
  Mlp net;
  std::vector<int> seen;
  GradientWatch watch(net.parameters(), [&](int parameter) {
    EXPECT_TRUE(net.parameters()[static_cast<size_t>(parameter)].grad().defined());
    seen.push_back(parameter);
  });
  loss_on(net, data_of(4)).backward();
  EXPECT_THAT(seen, ::testing::IsEmpty());  // Not armed.
  watch.arm(true);
  loss_on(net, data_of(4)).backward();
  EXPECT_THAT(seen, ::testing::UnorderedElementsAre(0, 1, 2, 3));
  EXPECT_LT(std::find(seen.begin(), seen.end(), 2), std::find(seen.begin(), seen.end(), 0));  // The last layer first.
}

TEST(GradientWatch, AGraphThatOutlivesItCallsNothing) {
  Mlp net;
  auto watch = std::make_unique<GradientWatch>(net.parameters(), [](int) { FAIL(); });
  watch->arm(true);
  const at::Tensor loss = loss_on(net, data_of(4));
  watch.reset();
  loss.backward();
}

class Overlap : public ::testing::TestWithParam<std::string> {};

TEST_P(Overlap, TrainsAsOneDevice) {
  Mlp expected;
  torch::optim::SGD optimizer(expected.parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
  for (int step = 0; step < 5; ++step) {
    optimizer.zero_grad();
    loss_on(expected, data_of(13, step)).backward();
    optimizer.step();
  }
  WorldOptions options = testing::world_options();
  options.backend = GetParam();
  Workers workers(3, options);
  const auto groups = workers.make_groups();
  on_ranks(groups, [&](Group& group) {
    EXPECT_TRUE(group.runs_in_background());
    auto net = std::make_shared<Mlp>();
    // Buckets of one parameter each.
    DataParallel replica(groups[static_cast<size_t>(group.rank())], net, SGD{.lr = 0.1, .momentum = 0.9},
                         {.buckets = {.capacity_bytes = 8, .first_bytes = 8}});
    for (int step = 0; step < 5; ++step) {
      const Data mine = data_of(13, step).share(group.rank(), group.size());
      if (step % 2 == 0) {
        replica.step(loss_on(*net, mine), mine.size());
      } else {  // Micro-batches: what travels is the sum.
        const auto half = mine.size() / 2;
        replica.backward(loss_on(*net, mine.part(0, half)), half);
        replica.last_backward(loss_on(*net, mine.part(half, mine.size())), mine.size() - half);
        replica.step();
      }
    }
    EXPECT_LT(difference(*net, expected), 1e-12);
  });
  workers.leave();
}

TEST_P(Overlap, AReplicaWithoutSamplesAndParametersWithoutGradientsHoldNobodyUp) {
  WorldOptions options = testing::world_options();
  options.backend = GetParam();
  Workers workers(2, options);
  const auto groups = workers.make_groups();
  on_ranks(groups, [&](Group& group) {
    auto net = std::make_shared<Mlp>();
    DataParallel replica(groups[static_cast<size_t>(group.rank())], net, SGD{.lr = 0.1},
                         {.buckets = {.capacity_bytes = 8, .first_bytes = 8}});
    for (int step = 0; step < 4; ++step) {
      StepOutcome outcome;
      if (group.rank() == step % 2)
        outcome = replica.step(net->second(at::ones({4, 10}, at::kDouble)).sum(), 4);
      else
        outcome = replica.step(at::Tensor(), 0);
      EXPECT_EQ(outcome.samples, 4);
      EXPECT_THAT(outcome.unused, ::testing::UnorderedElementsAre(0, 1));
    }
  });
  workers.leave();
}
INSTANTIATE_TEST_SUITE_P(Carriers, Overlap, ::testing::Values("gloo", "tcp"), [](const auto& each) { return each.param; });

}  // namespace
}  // namespace trireme
