// Sharded levels compute what copies compute, and what one device computes.
#include "kept.h"

#include <trireme/parallel/gradient_watch.h>
#include <trireme/tensor/deferred_model.h>
#include <trireme/tensor/replica_random.h>
// This header must come after those of torch.
#include <gmock/gmock.h>

#include "../base/expect_error.h"
#include "../tensor/counted_memory.h"

namespace trireme::keep_shards_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using tests::data_of;
using tests::difference;
using tests::Kept;
using tests::OddNet;
using tests::whole_of;
using tests::WholeState;

constexpr double kClose = 1e-10;

struct Course {
  int ranks = 2, level = 1, steps = 4, passes = 1;
  int64_t samples = 24;
  double clip_norm = 0;
  plan::BucketOptions buckets = {};
  // The ranks that use OddNet::extra; bit r for rank r.
  unsigned users = ~0U;
};

// Trains, and returns the state of all ranks in the end.
WholeState train(const Course& course, const OptimizerFactory& optimizer) {
  std::vector<EngineState> states(static_cast<size_t>(course.ranks));
  const auto groups = tests::thread_groups(course.ranks);
  std::vector<std::unique_ptr<Kept<OddNet>>> kept(states.size());
  tests::on_ranks(groups, [&](Group& group) {
    const auto rank = static_cast<size_t>(group.rank());
    auto& own = kept[rank] = std::make_unique<Kept<OddNet>>(
        groups[rank], course.level, optimizer, std::make_shared<OddNet>(), course.buckets);
    own->net->uses_extra = (course.users >> rank & 1U) != 0;
    for (int step = 0; step < course.steps; ++step)
      own->step(data_of(course.samples, step), course.passes, course.clip_norm);
    states[rank] = own->state();
  });
  return whole_of(states);
}

struct Rule {
  std::string name;
  OptimizerFactory optimizer;
};
std::vector<Rule> rules() {
  return {{"sgd", SGD{.lr = 0.1}},
          {"momentum", SGD{.lr = 0.1, .momentum = 0.9, .weight_decay = 0.01, .nesterov = true}},
          {"adam", Adam{.lr = 0.01}},
          {"amsgrad", Adam{.lr = 0.01, .weight_decay = 0.01, .amsgrad = true}},
          {"adamw", AdamW{.lr = 0.01}},
          {"rmsprop", RMSprop{.lr = 0.01, .momentum = 0.9, .centered = true}},
          {"adagrad", Adagrad{.lr = 0.05}},
          {"lars", Lars{.lr = 0.1, .weight_decay = 0.01}},
          {"lamb", Lamb{.lr = 0.01, .weight_decay = 0.01}}};
}

class KeepShards : public ::testing::TestWithParam<std::tuple<int, Rule>> {};
INSTANTIATE_TEST_SUITE_P(Levels, KeepShards,
                         ::testing::Combine(::testing::Values(1, 2, 3),
                                            ::testing::ValuesIn(rules())),
                         [](const auto& each) {
                           return std::get<1>(each.param).name + "_" +
                                  std::to_string(std::get<0>(each.param));
                         });

TEST_P(KeepShards, ComputesWhatOneDeviceComputes) {
  const auto& [level, rule] = GetParam();
  const WholeState alone = train({.ranks = 1, .level = -1}, rule.optimizer);
  for (const int ranks : {2, 3, 5})
    EXPECT_LT(difference(alone, train({.ranks = ranks, .level = level}, rule.optimizer)), kClose)
        << ranks;
}

// Lars and Lamb add up norms, whose parts have another order on two ranks.
TEST_P(KeepShards, GivesTheBitsOfCopiesOnTwoRanks) {
  const auto& [level, rule] = GetParam();
  const bool adds_norms = rule.name == "lars" || rule.name == "lamb";
  EXPECT_LE(
      difference(train({.level = -1}, rule.optimizer), train({.level = level}, rule.optimizer)),
      adds_norms ? kClose : 0);
}

class ShardLevels : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Levels, ShardLevels, ::testing::Values(1, 2, 3));

// Rows and parameters are fewer than ranks.
TEST_P(ShardLevels, WorkWithMoreRanksThanRows) {
  const OptimizerFactory adam = Adam{.lr = 0.01};
  const WholeState alone = train({.ranks = 1, .level = -1}, adam);
  EXPECT_LT(difference(alone, train({.ranks = 13, .level = GetParam()}, adam)), kClose);
}

TEST_P(ShardLevels, AccumulateMicroBatches) {
  const OptimizerFactory adam = Adam{.lr = 0.01};
  const WholeState alone = train({.ranks = 1, .level = -1}, adam);
  for (const int ranks : {2, 3})
    EXPECT_LT(difference(alone, train({.ranks = ranks, .level = GetParam(), .passes = 3}, adam)),
              kClose);
}

TEST_P(ShardLevels, TakeRanksWithoutSamplesAlong) {
  const OptimizerFactory adam = Adam{.lr = 0.01};
  for (const int64_t samples : {2, 4, 7}) {
    const WholeState alone = train({.ranks = 1, .level = -1, .samples = samples}, adam);
    EXPECT_LT(
        difference(alone, train({.ranks = 4, .level = GetParam(), .passes = 2, .samples = samples},
                                adam)),
        kClose)
        << samples;
  }
}

TEST_P(ShardLevels, ClipByTheNormOfAllRows) {
  const OptimizerFactory sgd = SGD{.lr = 0.5, .momentum = 0.9};
  const WholeState alone = train({.ranks = 1, .level = -1, .clip_norm = 0.05}, sgd);
  EXPECT_LT(difference(alone, train({.ranks = 3, .level = GetParam(), .clip_norm = 0.05}, sgd)),
            kClose);
  EXPECT_GT(difference(alone, train({.ranks = 1, .level = -1}, sgd)), 1e-3);  // It does clip.
}

TEST_P(ShardLevels, CountAGradientThatSomeRanksHaveAsZeroOnOthers) {
  const OptimizerFactory adam = Adam{.lr = 0.01};
  const Course copies{.ranks = 3, .level = -1, .users = 0b010};
  Course shards = copies;
  shards.level = GetParam();
  EXPECT_LT(difference(train(copies, adam), train(shards, adam)), kClose);
}

TEST_P(ShardLevels, LeaveOutParametersWithoutGradient) {
  const WholeState state = train({.level = GetParam()}, Adam{.lr = 0.01});
  for (const char* const name : {"exp_avg/last.unused", "exp_avg/middle.second.bias"})
    EXPECT_FALSE(state.tensors.contains(name)) << name;
  EXPECT_TRUE(state.tensors.contains("exp_avg/middle.scale"));
  const WholeState none = train({.level = GetParam(), .users = 0}, Adam{.lr = 0.01});
  EXPECT_FALSE(none.tensors.contains("exp_avg/middle.extra"));
}

TEST_P(ShardLevels, DoNotDependOnTheSizeOfUnits) {
  const OptimizerFactory adam = Adam{.lr = 0.01};
  const WholeState one = train({.level = GetParam()}, adam);
  EXPECT_LT(difference(one, train({.level = GetParam(), .buckets = {64, 64}}, adam)), kClose);
}

TEST_P(ShardLevels, EvaluateWithoutGradients) {
  const auto groups = tests::thread_groups(3);
  OddNet alone;
  tests::on_ranks(groups, [&](Group& group) {
    Kept<OddNet> kept(groups[static_cast<size_t>(group.rank())], GetParam(), SGD{.lr = 0.1});
    const at::NoGradGuard no_grad;
    const at::Tensor x = data_of(5).x;
    EXPECT_EQ(difference(kept.forward(x), output_of(alone.blocks(), {x})), 0);
  });
}

TEST_P(ShardLevels, UpdateEachElementOnce) {
  const auto groups = tests::thread_groups(3);
  std::atomic<int64_t> updated = 0;
  int64_t elements = 0;
  for (const at::Tensor& parameter : OddNet().parameters())
    if (parameter.requires_grad()) elements += parameter.numel();
  tests::on_ranks(groups, [&](Group& group) {
    Kept<OddNet> kept(groups[static_cast<size_t>(group.rank())], GetParam(), SGD{.lr = 0.1});
    kept.compute(data_of(9));
    kept.keeper->reduce();
    updated += kept.keeper->update(1);
    kept.keeper->publish();
  });
  EXPECT_EQ(updated, elements);
}

// A step that ends before its update leaves nothing behind.
TEST_P(ShardLevels, ForgetAStepThatWasAbandoned) {
  const auto groups = tests::thread_groups(2);
  const WholeState expected = train({.level = GetParam(), .steps = 1}, SGD{.lr = 0.1});
  std::vector<EngineState> states(2);
  std::vector<std::unique_ptr<Kept<OddNet>>> kept(2);
  tests::on_ranks(groups, [&](Group& group) {
    const auto rank = static_cast<size_t>(group.rank());
    kept[rank] = std::make_unique<Kept<OddNet>>(groups[rank], GetParam(), SGD{.lr = 0.1});
    kept[rank]->compute(data_of(24, 7));
    kept[rank]->keeper->drop_gradients();
    kept[rank]->forward(data_of(24, 8).x);  // Its backward never comes.
    kept[rank]->keeper->drop_gradients();
    kept[rank]->step(data_of(24, 0));
    states[rank] = kept[rank]->state();
  });
  EXPECT_EQ(difference(expected, whole_of(states)), 0);
}

// A graph of an older step must not be used with new parameters.
TEST_P(ShardLevels, TellAutogradOfTheUpdate) {
  const auto groups = tests::thread_groups(2);
  tests::on_ranks(groups, [&](Group& group) {
    Kept<OddNet> kept(groups[static_cast<size_t>(group.rank())], GetParam(), SGD{.lr = 0.1});
    const at::Tensor old = kept.forward(data_of(4).x).sum();
    kept.step(data_of(4));
    EXPECT_THAT([&] { old.backward(); }, ::testing::ThrowsMessage<c10::Error>(
                                             HasSubstr("modified by an inplace operation")));
  });
}

TEST_P(ShardLevels, RefuseOptimizersThatMayNotUpdateRows) {
  const auto groups = tests::thread_groups(2);
  EXPECT_THAT(message_of(ErrorCode::unsupported,
                         [&] {
                           tests::on_ranks(groups, [&](Group& group) {
                             Kept<OddNet>(groups[static_cast<size_t>(group.rank())], GetParam(),
                                          tests::recording());
                           });
                         }),
              AllOf(HasSubstr("update its rows"), HasSubstr("shard.level 0")));
}

// Eight equal blocks.
struct Tower : torch::nn::Module {
  static constexpr int kBlocks = 8, kWidth = 128;
  Tower() {
    for (int i = 0; i < kBlocks; ++i)
      layers.push_back(
          register_module("layer" + std::to_string(i), torch::nn::Linear(kWidth, kWidth)));
    to(at::kDouble);
    tests::fill(*this);
  }
  std::vector<Block> blocks() {
    std::vector<Block> blocks;
    for (auto& layer : layers)
      blocks.push_back({"block", {layer.ptr()}, [this, layer](const Tensors& x) mutable {
                          if (probe) probe();
                          return Tensors{at::tanh(layer(x[0]))};
                        }});
    return blocks;
  }
  std::vector<torch::nn::Linear> layers;
  std::function<void()> probe;
};

int64_t bytes_with_memory(const std::vector<at::Tensor>& tensors) {
  int64_t bytes = 0;
  for (const at::Tensor& tensor : tensors)
    if (tensor.defined() && !is_hollow(tensor)) bytes += static_cast<int64_t>(tensor.nbytes());
  return bytes;
}

// The bytes of a rank: the most that parameters and gradients had at the same time as a block of
// the model ran, and those of the optimizer's state.
struct Held {
  double parameters = 0, gradients = 0, state = 0;
};
Held most_held(int ranks, int level) {
  Held most;
  const auto groups = tests::thread_groups(ranks);
  tests::on_ranks(groups, [&](Group& group) {
    const auto rank = static_cast<size_t>(group.rank());
    std::vector<at::Tensor> rows;
    const OptimizerFactory adam = Adam{.lr = 0.01};
    const auto net = std::make_shared<Tower>();
    Kept<Tower> kept(
        groups[rank], level,
        [&](const std::vector<NamedTensor>& parameters) {
          for (const auto& [name, tensor] : parameters) rows.push_back(tensor);
          return adam(parameters);
        },
        net);
    Held mine;
    const auto measure = [&] {
      std::vector<at::Tensor> parameters = net->parameters(), gradients;
      for (const at::Tensor& parameter : parameters) gradients.push_back(parameter.grad());
      for (const at::Tensor& own : rows) gradients.push_back(own.grad());
      if (level == 3) parameters.insert(parameters.end(), rows.begin(), rows.end());
      mine.parameters =
          std::max(mine.parameters, static_cast<double>(bytes_with_memory(parameters)));
      mine.gradients = std::max(mine.gradients, static_cast<double>(bytes_with_memory(gradients)));
    };
    net->probe = measure;
    GradientWatch watch(net->parameters(), [&](int) { measure(); });
    watch.arm(true);
    const tests::Data data{at::ones({ranks, Tower::kWidth}, at::kDouble),
                           at::zeros({ranks}, at::kLong)};
    for (int step = 0; step < 2; ++step) kept.step(data);
    for (const StateEntry& entry : kept.state().tensors)
      if (entry.kind == StateKind::optimizer)
        mine.state += static_cast<double>(entry.tensor.nbytes());
    if (rank == 0) most = mine;
  });
  return most;
}

// The formulas of docs/sharding.md, with a model of P bytes whose largest block has B.
TEST(ShardedMemory, IsThatOfTheFormulas) {
  const double block = 8.0 * Tower::kWidth * (Tower::kWidth + 1), model = Tower::kBlocks * block;
  for (const int ranks : {2, 4}) {
    const double own = model / ranks;
    const std::vector<Held> expected = {{model, model, 2 * own},
                                        {model, own * 7 / 8 + block, 2 * own},
                                        {own + block, own * 7 / 8 + block, 2 * own}};
    for (const int level : {1, 2, 3}) {
      const Held held = most_held(ranks, level);
      const auto& [parameters, gradients, state] = expected[static_cast<size_t>(level) - 1];
      EXPECT_NEAR(held.parameters / parameters, 1, 0.05) << ranks << " " << level;
      EXPECT_NEAR(held.gradients / gradients, 1, 0.05) << ranks << " " << level;
      EXPECT_NEAR(held.state / state, 1, 0.05) << ranks << " " << level;
    }
  }
}

// Six blocks of one size, and an odd one.
struct Stack : torch::nn::Module {
  static constexpr int64_t kWidth = 1024, kBlock = kWidth * (kWidth + 1) * 4;
  Stack() {
    for (int i = 0; i < 7; ++i)
      layers.push_back(register_module("layer" + std::to_string(i),
                                       torch::nn::Linear(kWidth, i == 4 ? kWidth / 2 : kWidth)));
  }
  std::vector<Block> blocks() {
    std::vector<Block> blocks;
    for (auto& layer : layers)
      blocks.push_back({"block", {layer.ptr()}, [layer](const Tensors& x) mutable {
                          return Tensors{layer(x[0])};
                        }});
    return blocks;
  }
  std::vector<torch::nn::Linear> layers;
};

ParameterKeeperSetting setting_of(Stack& net, const std::shared_ptr<Group>& group) {
  ParameterKeeperSetting setting;
  for (const auto& [name, tensor] : state_of(net).parameters)
    setting.parameters.push_back(
        {name, tensor, {plan::TensorSlice::whole(name, tensor.sizes().vec())}});
  setting.replicas = group;
  setting.optimizer = SGD{.lr = 0.1};
  setting.blocks = net.blocks();
  setting.enters_backward.assign(setting.blocks.size(), true);
  setting.leaves_backward.assign(setting.blocks.size(), true);
  return setting;
}

// A model that is made block by block has the values of one that is made at once.
TEST(ShardedMemory, OfAModelThatIsMadeIsItsRowsAndABlock) {
  install_cpu_allocator();
  const auto groups = tests::thread_groups(2);
  tests::on_ranks(groups, [&](Group& group) {
    const auto& shared = groups[static_cast<size_t>(group.rank())];
    ReplicaRandom random(7);
    EngineState expected, made;
    {
      random.reseed(7);
      Stack whole;
      keep_shards(setting_of(whole, shared), 3)->show(expected);
    }
    const auto counted = std::make_shared<tests::CountingSource>();
    const AllocationScope scope(counted);
    random.reseed(7);
    DeferredModel deferred([] { return std::make_shared<Stack>(); });
    auto& net = dynamic_cast<Stack&>(*deferred.module());
    ParameterKeeperSetting setting = setting_of(net, shared);
    std::set<std::string> all;
    for (const OwnTensor& own : setting.parameters) all.insert(own.name);
    int times = 0;
    setting.materialise = [&](const std::set<std::string>& names) {
      ++times;
      std::set<std::string> others = all;
      for (const std::string& name : names) others.erase(name);
      deferred.release(others);
      deferred.materialise(names);
    };
    const auto keeper = keep_shards(std::move(setting), 3);
    EXPECT_EQ(times, 7);
    const size_t block = Stack::kBlock, rows = (6 * block + block / 2) / 2;
    EXPECT_GE(counted->peak(), rows + block);
    // Random numbers of other parameters are drawn in pieces of 256 KiB.
    EXPECT_LT(counted->peak(), rows + block + block / 8);
    EXPECT_LT(counted->live(), rows + block / 8);
    keeper->show(made);
    ASSERT_EQ(made.tensors.size(), expected.tensors.size());
    for (size_t i = 0; i < made.tensors.size(); ++i)
      EXPECT_TRUE(at::equal(made.tensors[i].tensor, expected.tensors[i].tensor));
  });
}

TEST(KeepShardsInOneMemory, LevelThreeNamesTheParameter) {
  const auto groups = tests::thread_groups(2);
  EXPECT_THAT(message_of(ErrorCode::unsupported,
                         [&] {
                           tests::on_ranks(groups, [&](Group& group) {
                             const auto net = std::make_shared<OddNet>();
                             const at::Tensor both = at::ones({2, 211}, at::kDouble);
                             net->second->bias.set_data(both[0]);
                             Kept<OddNet>(groups[static_cast<size_t>(group.rank())], 3,
                                          SGD{.lr = 0.1}, net);
                           });
                         }),
              HasSubstr("'middle.second.bias'"));
}

struct Layout {
  int ranks, level;
};
class ShardedState : public ::testing::TestWithParam<std::pair<Layout, Layout>> {};
INSTANTIATE_TEST_SUITE_P(Layouts, ShardedState,
                         ::testing::Values(std::pair(Layout{2, 3}, Layout{3, 1}),
                                           std::pair(Layout{3, 1}, Layout{1, -1}),
                                           std::pair(Layout{1, -1}, Layout{4, 2}),
                                           std::pair(Layout{4, 2}, Layout{2, 3}),
                                           std::pair(Layout{3, -1}, Layout{2, 1}),
                                           std::pair(Layout{5, 3}, Layout{2, -1})));

TEST_P(ShardedState, LoadsIntoAnyOtherLayout) {
  const auto& [before, after] = GetParam();
  for (const OptimizerFactory& optimizer :
       {OptimizerFactory(Adam{.lr = 0.01}), OptimizerFactory(Adagrad{.lr = 0.05}),
        OptimizerFactory(SGD{.lr = 0.1, .momentum = 0.9})}) {
    const WholeState saved =
        train({.ranks = before.ranks, .level = before.level, .steps = 2}, optimizer);
    const WholeState expected = train({.ranks = 1, .level = -1, .steps = 4}, optimizer);
    std::vector<EngineState> states(static_cast<size_t>(after.ranks));
    std::vector<std::unique_ptr<Kept<OddNet>>> kept(states.size());
    const auto groups = tests::thread_groups(after.ranks);
    tests::on_ranks(groups, [&](Group& group) {
      const auto rank = static_cast<size_t>(group.rank());
      kept[rank] = std::make_unique<Kept<OddNet>>(groups[rank], after.level, optimizer);
      load(*kept[rank]->keeper, saved);
      for (int step = 2; step < 4; ++step) kept[rank]->step(data_of(24, step));
      states[rank] = kept[rank]->state();
    });
    EXPECT_LT(difference(expected, whole_of(states)), kClose);
  }
}

}  // namespace
}  // namespace trireme::keep_shards_test
