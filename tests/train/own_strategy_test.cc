// Strategies of one's own, trained and refused by the Trainer.
#include "lost_worker.h"
#include "own_strategies.h"
// This header must come after those of torch.
#include <gmock/gmock.h>

#include <cmath>
#include <numeric>

#include "../base/expect_error.h"

namespace trireme::own_strategy_test {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::Ge;
using ::testing::HasSubstr;
using ::testing::SizeIs;
using tests::clouds;
using tests::difference;
using tests::fit;
using tests::job;
using tests::journal;
using tests::kAble;
using tests::kApart;
using tests::kOwn;
using tests::kSums;

class OwnStrategy : public tests::OwnStrategies {};

TEST_F(OwnStrategy, TrainsOnThreadsUnderItsName) {
  for (const int replicas : {1, 2, 3}) {
    const Report report = fit(options(48, replicas), job(rate()), clouds(90), clouds(30, 2));
    EXPECT_EQ(report.strategy, kOwn);
    EXPECT_EQ(report.world_size, replicas);
    EXPECT_EQ(report.steps, 48);
    EXPECT_TRUE(report.samples.exactly_once());
    EXPECT_LT(report.train_loss, 0.95 * report.loss_history.front());
    EXPECT_EQ(report.eval->samples, 30);
    // The facts of a step, and four tensors.
    EXPECT_DOUBLE_EQ(report.exchange_operations_per_step, replicas > 1 ? 5 : 0);
    EXPECT_EQ(report.updated_elements,
              std::vector<int64_t>(static_cast<size_t>(replicas), report.parameters));
  }
}

TEST_F(OwnStrategy, WithPlainSumsHasTheLossesOfOneDevice) {
  TrainerOptions alone = options(12, 1, "one_device");
  for (const int accumulate : {1, 3}) {
    alone.accumulate = accumulate;
    const Report reference = fit(alone, job(), clouds(90), clouds(31, 2));
    for (const int replicas : {1, 2, 3}) {
      TrainerOptions own = options(12, replicas, kSums);
      own.accumulate = accumulate;
      const Report report = fit(own, job(), clouds(90), clouds(31, 2));
      EXPECT_LT(difference(report.loss_history, reference.loss_history), 1e-10);
      EXPECT_NEAR(report.eval->loss, reference.eval->loss, 1e-10);
    }
  }
}

// Each sample has two values per channel, because torch::nn then accepts a share of one sample.
struct PairNorm : torch::nn::Module {
  at::Tensor forward(const at::Tensor& x) {
    return out(at::tanh(norm(in(x).view({-1, 4, 2})).flatten(1)));
  }
  torch::nn::Linear in = register_module("in", torch::nn::Linear(5, 8));
  torch::nn::BatchNorm1d norm = register_module("norm", torch::nn::BatchNorm1d(4));
  torch::nn::Linear out = register_module("out", torch::nn::Linear(8, 3));
};

TEST_F(OwnStrategy, NormalisesBatchesOverAllReplicasIfItSaysThatItCan) {
  const Report reference =
      fit(options(9, 1, "one_device"), job<PairNorm>(), clouds(34), clouds(30, 2));
  TrainerOptions own = options(9, 3, kSums);
  own.sync_batch_norm = true;
  // The last batch of each epoch has two samples for three replicas.
  const Report report = fit(own, job<PairNorm>(), clouds(34), clouds(30, 2));
  EXPECT_LT(difference(report.loss_history, reference.loss_history), 1e-10);
  EXPECT_NEAR(report.eval->loss, reference.eval->loss, 1e-10) << "running statistics";
}

TEST_F(OwnStrategy, EndsAtANaNLossNamingStepAndRank) {
  auto all = clouds(48);
  std::vector<int64_t> indices(48);
  std::iota(indices.begin(), indices.end(), 0);
  Example whole = all->get_batch(indices);
  whole.data[47][0] = std::nan("");
  TrainerOptions own = options(6, 3);
  own.shuffle = false;  // The bad sample is in the third batch, in the last share.
  EXPECT_THAT(message_of(ErrorCode::internal,
                         [&] {
                           fit(own, job(rate()),
                               std::make_shared<TensorSource>(whole.data, whole.target));
                         }),
              AllOf(HasSubstr("step 3"), HasSubstr("on rank 2"), HasSubstr("NaN")));
}

struct Wanted {
  std::string option;
  std::function<void(TrainerOptions&)> change;
};
std::vector<Wanted> wanted_options() {
  return {{"train.clip_norm", [](auto& o) { o.clip_norm = 1; }},
          {"guard.spike", [](auto& o) { o.guard.spike = 10; }},
          {"guard.policy skip", [](auto& o) { o.guard.policy = "skip"; }},
          {"guard.policy rollback", [](auto& o) { o.guard.policy = "rollback"; }},
          {"strategy.compression int8", [](auto& o) { o.compression.name = "int8"; }},
          {"strategy.local_steps", [](auto& o) { o.local.steps = 4; }},
          {"reproducible.virtual_shards", [](auto& o) { o.virtual_shards = 2; }},
          {"16 bits", [](auto& o) { o.dtype = plan::DType::bfloat16; }},
          {"16 bits", [](auto& o) { o.dtype = plan::DType::float16; }},
          {"loss scaling", [](auto& o) { o.loss_scaling.emplace(); }},
          {"strategy.sync_batch_norm", [](auto& o) { o.sync_batch_norm = true; }}};
}

TEST_F(OwnStrategy, IsRefusedWithEachOptionThatItLacks) {
  World world = tests::alone();
  for (const auto& [option, change] : wanted_options()) {
    TrainerOptions own = options(3);
    EXPECT_NO_THROW(Trainer(world, own));
    change(own);
    EXPECT_THAT(message_of(ErrorCode::invalid_argument, [&] { Trainer(world, own); }),
                AllOf(HasSubstr(fmt::format("strategy '{}'", kOwn)), HasSubstr(option)));
  }
}

TEST_F(OwnStrategy, IsAcceptedWithEachOptionThatItSaysItHas) {
  World world = tests::alone();
  for (const auto& [option, change] : wanted_options()) {
    TrainerOptions able = options(3, 1, kAble);
    change(able);
    EXPECT_NO_THROW(Trainer(world, able)) << option;
  }
}

TEST_F(OwnStrategy, WhoseReplicasDifferIsRefusedWithTheirComparison) {
  World world = tests::alone();
  for (const std::string name : {kOwn, kApart}) {
    TrainerOptions own = options(3, 1, name);
    own.guard.check_replicas_every = 2;
    if (name == kOwn)
      EXPECT_NO_THROW(Trainer(world, own));
    else
      EXPECT_THAT(message_of(ErrorCode::invalid_argument, [&] { Trainer(world, own); }),
                  AllOf(HasSubstr(kApart), HasSubstr("guard.check_replicas_every")));
  }
}

TEST_F(OwnStrategy, HasItsReplicasComparedIfTheyAreEqual) {
  TrainerOptions own = options(8, 3);
  own.guard.check_replicas_every = 4;
  EXPECT_EQ(fit(own, job(rate()), clouds(90)).steps, 8);
  own.inject.faults = parse_faults("corrupt:rank=1,exchange@step=6");
  EXPECT_THAT(message_of(ErrorCode::corrupt, [&] { fit(own, job(rate()), clouds(90)); }),
              HasSubstr("after step 8 the parameters of rank 1 differ"));
}

TEST_F(OwnStrategy, ThatIsNotKnownIsRefusedWithTheKnownNames) {
  World world = tests::alone();
  EXPECT_THAT(
      message_of(ErrorCode::invalid_argument, [&] { Trainer(world, options(3, 1, "telepathy")); }),
      AllOf(HasSubstr("strategy.name is \"telepathy\""), HasSubstr("one_device"),
            HasSubstr("multi_worker"), HasSubstr(kOwn)));
}

TEST_F(OwnStrategy, SurvivorsOfALostWorkerGoOnWithTheirOwnState) {
  const tests::AfterALoss result = tests::train_with_a_loss(options(12), rate());
  for (const size_t survivor : {0, 1}) {
    EXPECT_EQ(result.errors[survivor], "");
    const Report& report = result.reports[survivor];
    EXPECT_EQ(report.steps, 12);
    EXPECT_EQ(report.loss_history.size(), 12U);
    EXPECT_EQ(report.world_size, 2);
    EXPECT_GE(report.generations.size(), 2U);
    EXPECT_TRUE(report.samples.exactly_once());
    EXPECT_EQ(report.parameters_sha256, result.reports[0].parameters_sha256);
  }
  EXPECT_THAT(journal().carried_over(), AllOf(SizeIs(Ge(2U)), Each(1)));
}

}  // namespace
}  // namespace trireme::own_strategy_test
