// The base of strategies of one's own: what it does around exchange() and update().
#include "engines.h"

#include <torch/nn/modules/batchnorm.h>
// This header must come after those of torch.
#include <gmock/gmock.h>

#include <cmath>

#include "all_reduced.h"

namespace trireme::replica_engine_test {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using tests::AllReduced;
using tests::Data;
using tests::data_of;
using tests::Mlp;
using tests::on_ranks;
using tests::setting_of;
using tests::take_step;
using tests::thread_groups;

constexpr double kClose = 1e-12;

std::shared_ptr<Group> handle(const tests::Groups& groups, const Group& group) {
  return groups[static_cast<size_t>(group.rank())];
}

// The losses of one device that sees whole batches, and its model afterwards.
struct Reference {
  template <typename Net>
  Reference(std::shared_ptr<Net> net, const std::vector<Data>& batches,
            const OptimizerFactory& optimizer = SGD{.lr = 0.1, .momentum = 0.9}) {
    const auto engine =
        find_strategy("one_device").make(setting_of(thread_groups(1)[0], net, optimizer));
    for (const Data& batch : batches) losses.push_back(take_step(*engine, batch).loss);
    engine->prepare_to_read();
  }
  std::vector<double> losses;
};

std::vector<Data> batches(int count, int64_t samples) {
  std::vector<Data> made;
  for (int step = 0; step < count; ++step) made.push_back(data_of(samples, step));
  return made;
}

class OwnEngine : public ::testing::TestWithParam<int> {
 protected:
  int size() const { return GetParam(); }
};
INSTANTIATE_TEST_SUITE_P(WorldSizes, OwnEngine, ::testing::Values(1, 2, 3));

// 17 samples: neither 2 nor 3 ranks divide them, and no number of passes divides a share.
TEST_P(OwnEngine, HasTheLossesOfOneDevice) {
  const std::vector<Data> data = batches(5, 17);
  const auto reference = std::make_shared<Mlp>();
  const Reference alone(reference, data);
  for (const int passes : {1, 3}) {
    const auto groups = thread_groups(size());
    on_ranks(groups, [&](Group& group) {
      const auto net = std::make_shared<Mlp>();
      AllReduced engine(setting_of(handle(groups, group), net));
      for (size_t step = 0; step < data.size(); ++step) {
        const StepOutcome outcome =
            take_step(engine, data[step], static_cast<int64_t>(step) + 1, passes);
        EXPECT_NEAR(outcome.loss, alone.losses[step], kClose);
        EXPECT_EQ(outcome.samples, 17);
        EXPECT_TRUE(outcome.updated);
        EXPECT_FALSE(outcome.stop);
        EXPECT_FALSE(outcome.regroup);
        EXPECT_THAT(outcome.nonfinite_ranks, IsEmpty());
      }
      EXPECT_LT(tests::difference(*net, *reference), kClose);
    });
  }
}

TEST_P(OwnEngine, WorksWithRanksThatHaveNoSamples) {
  const std::vector<Data> data = {data_of(2, 0), data_of(1, 1), data_of(4, 2)};
  const auto reference = std::make_shared<Mlp>();
  const Reference alone(reference, data);
  const auto groups = thread_groups(size());
  on_ranks(groups, [&](Group& group) {
    const auto net = std::make_shared<Mlp>();
    AllReduced engine(setting_of(handle(groups, group), net));
    for (size_t step = 0; step < data.size(); ++step) {
      const StepOutcome outcome = take_step(engine, data[step], 1, /*passes=*/2);
      EXPECT_NEAR(outcome.loss, alone.losses[step], kClose);
      EXPECT_EQ(outcome.samples, data[step].size());
      EXPECT_TRUE(outcome.updated);
    }
    EXPECT_LT(tests::difference(*net, *reference), kClose);
  });
}

TEST_P(OwnEngine, KeepsRanksAlikeBitForBit) {
  std::vector<std::string> hashes(static_cast<size_t>(size()));
  const auto groups = thread_groups(size());
  on_ranks(groups, [&](Group& group) {
    const auto net = std::make_shared<Mlp>();
    AllReduced engine(setting_of(handle(groups, group), net, Adam{.lr = 0.01}));
    for (int step = 0; step < 4; ++step) take_step(engine, data_of(11, step));
    hashes[static_cast<size_t>(group.rank())] = sha256_of(state_of(*net).parameters);
  });
  EXPECT_THAT(hashes, ::testing::Each(hashes[0]));
}

TEST_P(OwnEngine, GivesExchangeThisRanksPartOfTheGradient) {
  // Adds up the parts of all ranks, and updates nothing.
  struct Recording : ReplicaEngine {
    using ReplicaEngine::ReplicaEngine;
    void exchange() override {
      EXPECT_FALSE(at::GradMode::is_enabled());
      for (const auto& [name, tensor] : parameters()) {
        const at::Tensor sum =
            tensor.grad().defined() ? tensor.grad().clone() : at::zeros_like(tensor);
        group().all_reduce(sum);
        sums.push_back(sum);
      }
    }
    void update() override { EXPECT_FALSE(at::GradMode::is_enabled()); }
    std::vector<at::Tensor> sums;
  };
  const Data whole = data_of(5);
  Mlp reference;
  loss_on(reference, whole).backward();
  const auto groups = thread_groups(size());
  on_ranks(groups, [&](Group& group) {
    const auto net = std::make_shared<Mlp>();
    Recording engine(setting_of(handle(groups, group), net));
    take_step(engine, whole, 1, /*passes=*/2);
    ASSERT_EQ(engine.sums.size(), reference.parameters().size());
    for (size_t i = 0; i < engine.sums.size(); ++i)
      EXPECT_LT(tests::difference(engine.sums[i], reference.parameters()[i].grad()), kClose);
    for (const at::Tensor& parameter : net->parameters())
      EXPECT_FALSE(parameter.grad().defined()) << "gradients are cleared after the step";
  });
}

TEST_P(OwnEngine, ANaNLossOfOneRankUpdatesNothingAnywhereAndNamesTheRank) {
  const int bad = size() - 1;
  const auto groups = thread_groups(size());
  on_ranks(groups, [&](Group& group) {
    const auto net = std::make_shared<Mlp>();
    EngineSetting setting = setting_of(handle(groups, group), net);
    bool is_bad = false;
    setting.loss = [&](const at::Tensor& output, const at::Tensor& target) {
      const at::Tensor loss = tests::cross_entropy(output, target);
      return is_bad && group.rank() == bad ? loss * std::nan("") : loss;
    };
    AllReduced engine(setting);
    take_step(engine, data_of(9));
    const auto hashes = [&] {
      const StateView view = engine.state().tensors;
      return std::pair(sha256_of(tensors_of(view, StateKind::parameter)),
                       sha256_of(tensors_of(view, StateKind::optimizer)));
    };
    const auto before = hashes();
    is_bad = true;
    const StepOutcome outcome = take_step(engine, data_of(9, 1));
    EXPECT_THAT(outcome.nonfinite_ranks, ElementsAre(bad));
    EXPECT_FALSE(outcome.updated);
    EXPECT_EQ(outcome.updated_elements, 0);
    EXPECT_EQ(engine.updates, 1);
    EXPECT_EQ(hashes(), before);
    is_bad = false;
    EXPECT_TRUE(take_step(engine, data_of(9, 2)).updated);
    EXPECT_NE(hashes(), before);
    EXPECT_TRUE(state_of(*net).parameters[0].tensor.isfinite().all().item<bool>())
        << "the bad gradient is gone";
  });
}

TEST_P(OwnEngine, TellsAllRanksTheWishesOfOne) {
  const int wishing = size() - 1;
  const auto groups = thread_groups(size());
  on_ranks(groups, [&](Group& group) {
    Wishes wishes;
    EngineSetting setting = setting_of(handle(groups, group), std::make_shared<Mlp>());
    setting.wishes = [&] { return group.rank() == wishing ? wishes : Wishes(); };
    AllReduced engine(setting);
    for (const bool stop : {false, true})
      for (const bool regroup : {false, true}) {
        wishes = {stop, regroup};
        const StepOutcome outcome = take_step(engine, data_of(6));
        EXPECT_EQ(outcome.stop, stop);
        EXPECT_EQ(outcome.regroup, regroup);
        EXPECT_TRUE(outcome.updated) << "the step counts all the same";
      }
  });
}

TEST_P(OwnEngine, TellsPhasesInOrderAndAsksForWishesAtTheEnd) {
  const auto groups = thread_groups(size());
  on_ranks(groups, [&](Group& group) {
    std::vector<std::string> calls;
    EngineSetting setting = setting_of(handle(groups, group), std::make_shared<Mlp>());
    setting.enter = [&](Phase phase) { calls.emplace_back(to_string(phase)); };
    setting.wishes = [&] {
      calls.emplace_back("wishes");
      return Wishes();
    };
    AllReduced engine(setting);
    take_step(engine, data_of(12), 1, /*passes=*/2);
    EXPECT_THAT(calls,
                ElementsAre("forward", "backward", "forward", "backward", "exchange", "wishes"));
  });
}

TEST_P(OwnEngine, CountsTheOperationsAndBytesOfTheStep) {
  const auto groups = thread_groups(size());
  on_ranks(groups, [&](Group& group) {
    AllReduced engine(setting_of(handle(groups, group), std::make_shared<Mlp>()));
    for (int step = 0; step < 2; ++step) {
      const Traffic before = group.traffic();
      const StepOutcome outcome = take_step(engine, data_of(12, step));
      const Traffic sent = group.traffic() - before;
      EXPECT_EQ(outcome.operations, sent.operations);
      EXPECT_EQ(outcome.bytes_sent, sent.bytes_sent);
      // The facts of the step, and four gradients.
      EXPECT_EQ(outcome.operations, size() > 1 ? 5 : 0);
      EXPECT_EQ(outcome.bytes_sent > 0, size() > 1);
    }
  });
}

TEST_P(OwnEngine, CountsOnlyTrainableElementsAsUpdated) {
  const auto groups = thread_groups(size());
  on_ranks(groups, [&](Group& group) {
    const auto net = std::make_shared<Mlp>();
    net->first->bias.requires_grad_(false);
    const at::Tensor frozen = net->first->bias.detach().clone();
    AllReduced engine(setting_of(handle(groups, group), net));
    EXPECT_EQ(take_step(engine, data_of(6)).updated_elements, 60 + 40 + 4);
    EXPECT_TRUE(net->first->bias.equal(frozen));
    EXPECT_EQ(engine.plan().shards.elements_of(group.rank()), 60 + 40 + 4);
  });
}

TEST_P(OwnEngine, TakesTheRatesThatItIsGiven) {
  const auto groups = thread_groups(size());
  on_ranks(groups, [&](Group& group) {
    const auto net = std::make_shared<Mlp>();
    AllReduced engine(setting_of(handle(groups, group), net, SGD{.lr = 0.1}));
    EXPECT_THAT(engine.rates(), ElementsAre(0.1));
    engine.set_rates(std::vector<double>{0});
    EXPECT_THAT(engine.rates(), ElementsAre(0));
    EXPECT_TRUE(take_step(engine, data_of(6)).updated);
    EXPECT_EQ(tests::difference(*net, Mlp()), 0) << "a rate of 0 moves nothing";
  });
}

// Each sample has two values per channel, because torch::nn then accepts a share of one sample.
struct NormMlp : Mlp {
  NormMlp() : Mlp(6, 10, 4) { norm->to(at::kDouble); }
  at::Tensor forward(const at::Tensor& x) {
    return second(at::tanh(norm(first(x).view({-1, 5, 2})).flatten(1)));
  }
  torch::nn::BatchNorm1d norm = register_module("norm", torch::nn::BatchNorm1d(5));
};

TEST_P(OwnEngine, NormalisesOverAllRanksIfItIsGivenAGroupForThat) {
  // With three ranks the last batch leaves one without samples.
  const std::vector<Data> data = {data_of(9, 0), data_of(7, 1), data_of(2, 2)};
  const auto reference = std::make_shared<NormMlp>();
  const Reference alone(reference, data);
  const auto groups = thread_groups(size()), norm_groups = thread_groups(size());
  on_ranks(groups, [&](Group& group) {
    const auto net = std::make_shared<NormMlp>();
    EngineSetting setting = setting_of(handle(groups, group), net);
    setting.norm_group = handle(norm_groups, group);
    AllReduced engine(setting);
    for (size_t step = 0; step < data.size(); ++step)
      EXPECT_NEAR(take_step(engine, data[step]).loss, alone.losses[step], 1e-10);
    EXPECT_LT(tests::difference(*net, *reference), 1e-10);
    EXPECT_LT(tests::difference(net->norm->running_mean, reference->norm->running_mean), 1e-10);
  });
}

}  // namespace
}  // namespace trireme::replica_engine_test
