// Buckets that are sent while backward runs: the gradients are the same, and rank 0
// sees the order.
#include "models.h"
// This header must come after those of torch.
#include <gmock/gmock.h>

#include <trireme/parallel/gradient_watch.h>
#include <trireme/parallel/shared/between_hosts.h>

namespace trireme::overlap_test {
namespace {

using tests::Data;
using tests::data_of;
using tests::difference;
using tests::Mlp;
using tests::on_ranks;
using tests::Workers;

TEST(GradientWatch, ReportsEachParameterWhenItsGradientIsComplete) {
  Mlp net;
  std::vector<int> seen;
  GradientWatch watch(net.parameters(), [&](int parameter) {
    EXPECT_TRUE(net.parameters()[static_cast<size_t>(parameter)].grad().defined());
    seen.push_back(parameter);
  });
  loss_on(net, data_of(4)).backward();
  EXPECT_THAT(seen, ::testing::IsEmpty());  // The watch is not armed yet.
  watch.arm(true);
  loss_on(net, data_of(4)).backward();
  EXPECT_THAT(seen, ::testing::UnorderedElementsAre(0, 1, 2, 3));
  // The last layer is complete first.
  EXPECT_LT(std::find(seen.begin(), seen.end(), 2), std::find(seen.begin(), seen.end(), 0));
}

// As torch::load() does it.
TEST(GradientWatch, ReportsAParameterThatWasGivenOtherMemory) {
  Mlp net;
  int first = 0, second = 0;
  GradientWatch one(net.parameters(), [&](int) { ++first; });
  GradientWatch other(net.parameters(), [&](int) { ++second; });
  one.arm(true);
  other.arm(true);
  {
    const at::NoGradGuard no_grad;
    for (const at::Tensor& parameter : net.parameters()) parameter.set_(parameter.clone());
  }
  loss_on(net, data_of(4)).backward();
  EXPECT_EQ(first, 4);
  EXPECT_EQ(second, 4);
}

TEST(GradientWatch, AGraphThatOutlivesItCallsNothing) {
  Mlp net;
  auto watch = std::make_unique<GradientWatch>(net.parameters(), [](int) { FAIL(); });
  watch->arm(true);
  const at::Tensor loss = loss_on(net, data_of(4));
  watch.reset();
  loss.backward();
}

// Either each rank has its own host, or the first two share one host and one copy of
// the parameters.
struct Way {
  std::string backend;
  std::vector<std::string> hosts;
};
class Overlap : public ::testing::TestWithParam<Way> {
 protected:
  static WorldOptions world_options() {
    WorldOptions options = tests::world_options();
    options.backend = GetParam().hosts.empty() ? GetParam().backend : "auto";
    return options;
  }
  // Each bucket has one parameter.
  static DataParallelOptions engine_options() {
    return {.share_parameters = !GetParam().hosts.empty(),
            .buckets = {.capacity_bytes = 8, .first_bytes = 8}};
  }
};

TEST_P(Overlap, TrainsAsOneDevice) {
  Mlp expected;
  torch::optim::SGD optimizer(expected.parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
  for (int step = 0; step < 5; ++step) {
    optimizer.zero_grad();
    loss_on(expected, data_of(13, step)).backward();
    optimizer.step();
  }
  Workers workers(3, world_options(), GetParam().hosts);
  const auto groups = workers.make_groups();
  on_ranks(groups, [&](Group& group) {
    EXPECT_TRUE(group.runs_in_background() || !GetParam().hosts.empty());
    auto net = std::make_shared<Mlp>();
    DataParallel replica(groups[static_cast<size_t>(group.rank())], net,
                         SGD{.lr = 0.1, .momentum = 0.9}, engine_options());
    for (int step = 0; step < 5; ++step) {
      const Data mine = data_of(13, step).share(group.rank(), group.size());
      if (step % 2 == 0) {
        replica.step(loss_on(*net, mine), mine.size());
      } else {  // With micro-batches the sum travels.
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

TEST_P(Overlap, AReplicaWithoutSamplesAndParametersWithoutGradientsBlockNoRank) {
  Workers workers(3, world_options(), GetParam().hosts);
  const auto groups = workers.make_groups();
  on_ranks(groups, [&](Group& group) {
    auto net = std::make_shared<Mlp>();
    DataParallel replica(groups[static_cast<size_t>(group.rank())], net, SGD{.lr = 0.1},
                         engine_options());
    for (int step = 0; step < 6; ++step) {
      StepOutcome outcome;
      if (group.rank() == step % 3)
        outcome = replica.step(net->second(at::ones({4, 10}, at::kDouble)).sum(), 4);
      else
        outcome = replica.step(at::Tensor(), 0);
      EXPECT_EQ(outcome.samples, 4);
      EXPECT_THAT(outcome.unused, ::testing::UnorderedElementsAre(0, 1));
    }
  });
  workers.leave();
}
INSTANTIATE_TEST_SUITE_P(Backends, Overlap,
                         ::testing::Values(Way{"gloo", {}}, Way{"tcp", {}},
                                           Way{"hosts", {"a", "a", "b"}}),
                         [](const auto& each) { return each.param.backend; });

TEST(BetweenHosts, BucketsThatAllRanksOfAHostCompleteAreReducedAndSentInBackward) {
  Workers workers(3, tests::world_options(), {"a", "a", "b"});
  const auto groups = workers.make_groups();
  on_ranks(groups, [&](Group& group) {
    Mlp net;
    const std::vector<NamedTensor> parameters = state_of(net).parameters;
    int reductions = 0;
    std::optional<shared::BetweenHosts> between;
    const auto reduce = [&](int p) {
      ++reductions;
      std::fill_n(reinterpret_cast<double*>(between->reduced(p)),
                  parameters[static_cast<size_t>(p)].tensor.numel(), group.rank() < 2 ? 2 : 1);
    };
    const plan::BucketPlan plan =
        plan::plan_buckets(specs_of(parameters), {.capacity_bytes = 8, .first_bytes = 8});
    between.emplace(groups[static_cast<size_t>(group.rank())], parameters, plan,
                    CompressionOptions{}, shared::BetweenHosts::Actions{[](int) {}, reduce});
    for (int step = 0; step < 2; ++step) {
      reductions = 0;
      between->expect_last_backward(1);
      loss_on(net, data_of(4)).backward();
      between->backward_ended(1);
      EXPECT_EQ(between->buckets_in_backward(), 4);
      group.host_team()->barrier("test");
      at::Tensor facts = at::ones({1}, at::kDouble);
      if (group.between_hosts())
        between->all_reduce(*group.between_hosts(), facts, [] { FAIL(); });
      between->next_step();
      group.host_team()->barrier("test");
      // The sum is 2 from host a and 1 from host b.
      for (int p = 0; p < 4; ++p) EXPECT_EQ(*reinterpret_cast<double*>(between->reduced(p)), 3);
      at::Tensor all = at::full({1}, reductions, at::kLong);
      group.all_reduce(all);
      EXPECT_EQ(all.item<int64_t>(), 2 * 4);  // Each host reduces each parameter once.
      net.zero_grad();
    }
  });
  workers.leave();
}

}  // namespace
}  // namespace trireme::overlap_test
