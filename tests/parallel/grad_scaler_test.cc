#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <trireme/parallel/grad_scaler.h>

#include "models.h"

namespace trireme::tests::grad_scaler_test {
namespace {

TEST(GradScaler, HalvesOnOverflowAndDoublesAfterManySteps) {
  GradScaler scaler({.growth_interval = 3});
  EXPECT_EQ(scaler.scale(), 65536);
  scaler.update(true);
  EXPECT_EQ(scaler.scale(), 32768);
  scaler.update(false);
  scaler.update(false);
  EXPECT_EQ(scaler.scale(), 32768);
  scaler.update(true);  // The count starts again.
  EXPECT_EQ(scaler.scale(), 16384);
  for (int step = 0; step < 3; ++step) scaler.update(false);
  EXPECT_EQ(scaler.scale(), 32768);
  for (int step = 0; step < 3; ++step) scaler.update(false);
  EXPECT_EQ(scaler.scale(), 65536);
}

TEST(GradScaler, ContinuesFromItsState) {
  GradScaler one({.growth_interval = 3}), two({.growth_interval = 3});
  one.update(true);
  one.update(false);
  two.load(Json::parse(one.state().dump()));
  for (GradScaler* scaler : {&one, &two}) {
    scaler->update(false);
    EXPECT_EQ(scaler->scale(), 32768);
    scaler->update(false);
    EXPECT_EQ(scaler->scale(), 65536);
  }
}

TEST(GradScaler, FailsIfTheScaleIsNotTheCause) {
  GradScaler scaler;
  int halvings = 0;
  try {
    for (; halvings < 100; ++halvings) scaler.update(true);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::internal);
    EXPECT_EQ(halvings, 32);
  }
}

TEST(GradScaler, RefusesImpossibleOptions) {
  EXPECT_THROW(GradScaler({.initial = 0}), Error);
  EXPECT_THROW(GradScaler({.growth = 1}), Error);
  EXPECT_THROW(GradScaler({.backoff = 1}), Error);
  EXPECT_THROW(GradScaler({.growth_interval = 0}), Error);
}

TEST(LossScaling, LeavesGradientsAsTheyWere) {
  const Data whole = data_of(9);
  Mlp reference;
  loss_on(reference, whole).backward();
  for (const std::string compression : {"none", "powersgd"}) {
    const auto groups = thread_groups(3);
    on_ranks(groups, [&](Group& group) {
      const auto net = std::make_shared<Mlp>();
      DataParallel replica(
          groups[static_cast<size_t>(group.rank())], net, recording(),
          {.compression = {.name = compression, .rank = 10}, .loss_scaling = GradScalerOptions{}});
      EXPECT_EQ(replica.loss_scale(), 65536);
      const Data mine = whole.share(group.rank(), 3);
      const StepOutcome outcome = replica.step(loss_on(*net, mine), mine.size(), 9);
      EXPECT_LT(difference(recorded(replica)[0], reference.first->weight.grad()), 1e-12)
          << compression;
      EXPECT_NEAR(outcome.loss, loss_on(reference, whole).item<double>(), 1e-12);
    });
  }
}

TEST(LossScaling, SkipsAStepThatOverflowsOnOneRankOnAllAndHalvesTheScale) {
  for (const int ranks : {1, 2, 3}) {
    const auto groups = thread_groups(ranks);
    on_ranks(groups, [&](Group& group) {
      const auto net = std::make_shared<Mlp>();
      DataParallel replica(groups[static_cast<size_t>(group.rank())], net, Adam{.lr = 0.1},
                           {.loss_scaling = GradScalerOptions{}});
      const Data mine = data_of(12).share(group.rank(), ranks);
      const std::string before = sha256_of(replica.state().parameters);
      replica.backward(loss_on(*net, mine), mine.size(), 12);
      if (group.rank() == ranks - 1)
        net->second->bias.mutable_grad()[0] = std::numeric_limits<double>::infinity();
      const StepOutcome skipped = replica.step();
      EXPECT_TRUE(skipped.nonfinite_gradients);
      EXPECT_FALSE(skipped.updated);
      EXPECT_EQ(replica.loss_scale(), 32768);
      EXPECT_EQ(sha256_of(replica.state().parameters), before);
      EXPECT_TRUE(replica.optimizer().state().empty()) << "the optimizer counted the step";
      const Json counters = replica.counters();
      replica.load_counters(Json::parse(counters.dump()));
      EXPECT_TRUE(replica.step(loss_on(*net, mine), mine.size(), 12).updated);
      EXPECT_EQ(replica.loss_scale(), 32768);
    });
  }
}

// A linear layer whose updates are far below the rounding of its weights.
struct Bfloat16Line : torch::nn::Module {
  Bfloat16Line() {
    to(at::kBFloat16);
    const at::NoGradGuard no_grad;
    line->weight.fill_(1);
  }
  at::Tensor forward(const at::Tensor& x) { return line(x); }
  torch::nn::Linear line =
      register_module("line", torch::nn::Linear(torch::nn::LinearOptions(4, 1).bias(false)));
};

TEST(MasterWeights, CollectUpdatesThatWouldVanishInSixteenBits) {
  const auto groups = thread_groups(2);
  on_ranks(groups, [&](Group& group) {
    const auto net = std::make_shared<Bfloat16Line>();
    DataParallel replica(groups[static_cast<size_t>(group.rank())], net, SGD{.lr = 1e-4});
    ASSERT_EQ(replica.masters().size(), 1u);
    EXPECT_EQ(replica.masters()[0].name, "master/line.weight");
    EXPECT_EQ(replica.masters()[0].tensor.scalar_type(), at::kFloat);
    const at::Tensor x = at::ones({1, 4}, at::kBFloat16);
    for (int step = 0; step < 100; ++step)
      replica.step(net->forward(x).to(at::kFloat).mean(), 1, 2);
    // Each of 100 steps changes the weight by 1e-4. In bfloat16 alone each change would be rounded
    // away: 1 - 1e-4 is 1 there.
    EXPECT_NEAR(replica.masters()[0].tensor[0][0].item<float>(), 0.99, 1e-4);
    EXPECT_EQ(net->line->weight.scalar_type(), at::kBFloat16);
    EXPECT_NEAR(net->line->weight[0][0].item<float>(), 0.99, 4e-3);
    EXPECT_LT(net->line->weight[0][0].item<float>(), 1);
    EXPECT_FALSE(net->line->weight.grad().defined());
  });
}

}  // namespace
}  // namespace trireme::tests::grad_scaler_test
