// A rank dies inside the update of shared memory, at every run and moment of it: the other ranks
// commit the step without it.
#include "models.h"
// This header must come after those of torch.
#include <gmock/gmock.h>

#include <atomic>

namespace trireme::update_guard_test {
namespace {

using Moment = shared::UpdateGuardOptions::Moment;
using tests::Data;
using tests::data_of;
using tests::difference;
using tests::Mlp;
using tests::on_ranks;

constexpr int kRanks = 3, kFatalStep = 2;

// A model whose largest shard needs several runs, some of them not full.
class Wide : public torch::nn::Module {
 public:
  Wide() {
    at::manual_seed(3);
    first = register_module("first", torch::nn::Linear(6, 1700));
    second = register_module("second", torch::nn::Linear(1700, 4));
    to(at::kDouble);
  }
  at::Tensor forward(const at::Tensor& x) { return second(at::tanh(first(x))); }
  torch::nn::Linear first{nullptr}, second{nullptr};
};

struct Died {};

struct Death {
  int rank = 1;
  int64_t run = 0;
  Moment moment = Moment::copied;
};

struct Way {
  std::string name;
  double clip_norm;
  OptimizerFactory optimizer;
};
std::vector<Way> ways() {
  return {{"fused_momentum", 0, SGD{.lr = 0.1, .momentum = 0.9}},
          {"fused_adam", 0, Adam{.lr = 0.01}},
          {"clipped_adam", 0.5, Adam{.lr = 0.01}}};
}

at::Tensor loss_of_share(Wide& net, const Data& data) {
  return at::cross_entropy_loss(net.forward(data.x), data.y);
}

// The parameters after kFatalStep + 1 steps. With a death in the last step, they are those of the
// first survivor. `runs` is the number of runs of the dying rank's shard.
std::vector<at::Tensor> train(const Way& way, const std::optional<Death>& death, int64_t& runs) {
  const auto groups = tests::thread_groups(kRanks);
  std::vector<at::Tensor> result;
  std::atomic<bool> dead = false;
  std::atomic<int64_t> seen = 0;
  std::atomic<int> survivors = 0;
  // Ranks do not make their own nets, because threads would draw from one generator.
  std::vector<std::shared_ptr<Wide>> nets;
  for (int rank = 0; rank < kRanks; ++rank) nets.push_back(std::make_shared<Wide>());
  on_ranks(groups, [&](Group& group) {
    const auto net = nets[static_cast<size_t>(group.rank())];
    int step = 0;
    DataParallelOptions options{.clip_norm = way.clip_norm, .share_parameters = true};
    options.guard.wanted = true;
    options.guard.lives = [&](int rank) { return !(death && dead && rank == death->rank); };
    options.guard.at_moment = [&](int64_t run, Moment moment) {
      if (group.rank() != 1 || step != kFatalStep || dead) return;
      seen = std::max<int64_t>(seen, run + 1);
      if (!death || run != death->run || moment != death->moment) return;
      dead = true;
      group.abort("it died");
      throw Died();
    };
    DataParallel replica(groups[static_cast<size_t>(group.rank())], net, way.optimizer, options);
    ASSERT_TRUE(replica.shares_parameters());
    try {
      for (; step <= kFatalStep; ++step) {
        const Data mine = data_of(12, step).share(group.rank(), group.size());
        EXPECT_TRUE(replica.step(loss_of_share(*net, mine), mine.size()).updated);
      }
    } catch (const Died&) {
      return;
    }
    ++survivors;
    EXPECT_FALSE(replica.is_torn());
    if (death) {
      // The next meeting reports the death.
      EXPECT_THROW(replica.step(loss_of_share(*net, data_of(4)), 4), Error);
    }
    if (group.rank() == 0)
      for (const at::Tensor& parameter : net->parameters())
        result.push_back(parameter.detach().clone());
  });
  EXPECT_EQ(survivors, death ? kRanks - 1 : kRanks);
  runs = seen;
  return result;
}

class UpdateGuard : public ::testing::TestWithParam<Way> {};

TEST_P(UpdateGuard, ADeathAtEveryRunAndMomentLeavesTheStepCommitted) {
  int64_t runs = 0, ignored = 0;
  const std::vector<at::Tensor> expected = train(GetParam(), std::nullopt, runs);
  ASSERT_GE(runs, 3);
  for (int64_t run = 0; run < runs; ++run)
    for (const Moment moment : {Moment::copied, Moment::updated}) {
      const std::vector<at::Tensor> survived = train(GetParam(), Death{1, run, moment}, ignored);
      ASSERT_EQ(survived.size(), expected.size());
      for (size_t i = 0; i < expected.size(); ++i)
        EXPECT_TRUE(survived[i].equal(expected[i])) << "run " << run;
    }
}
INSTANTIATE_TEST_SUITE_P(Ways, UpdateGuard, ::testing::ValuesIn(ways()),
                         [](const auto& each) { return each.param.name; });

}  // namespace
}  // namespace trireme::update_guard_test
