// Runs of the Trainer whose ranks divide their state: the losses of one device, and checkpoints
// that any other run can load.
#include "layouts.h"

#include <torch/nn/modules/normalization.h>
// This header must come after those of torch.
#include <gmock/gmock.h>

#include "../base/expect_error.h"

namespace trireme::sharded_run_test {
namespace {

using ::testing::HasSubstr;
using tests::Chain;
using tests::clouds;
using tests::difference;
using tests::Divided;
using tests::fit;
using tests::Folder;
using tests::Layout;
using tests::options_of;
using tests::Tied;

constexpr double kClose = 1e-10;

Job chain(const OptimizerFactory& optimizer = Adam{.lr = 0.01}) {
  return tests::job<Chain>(optimizer);
}

// Blocks whose weights are computed from parameters, so backward needs the parameters' values to
// get the gradients of weights; and norms, whose gradients belong to the first half of a backward.
struct Computed : torch::nn::Module {
  Computed() {
    for (int i = 0; i < 4; ++i) {
      layers.push_back(
          register_module("layer" + std::to_string(i), torch::nn::Linear(i == 0 ? 5 : 9, 9)));
      norms.push_back(register_module("norm" + std::to_string(i),
                                      torch::nn::LayerNorm(torch::nn::LayerNormOptions({9}))));
    }
  }
  at::Tensor forward(const at::Tensor& x) { return output_of(blocks(), {x}); }
  std::vector<Block> blocks() {
    std::vector<Block> blocks;
    for (size_t i = 0; i < layers.size(); ++i)
      blocks.push_back({"block" + std::to_string(i),
                        {layers[i].ptr(), norms[i].ptr()},
                        [this, i](const Tensors& all) {
                          const at::Tensor weight = layers[i]->weight * layers[i]->weight.exp();
                          const at::Tensor x = at::linear(all[0], weight, layers[i]->bias);
                          return Tensors{norms[i](at::tanh(x))};
                        }});
    return blocks;
  }
  std::vector<torch::nn::Linear> layers;
  std::vector<torch::nn::LayerNorm> norms;
};

// 31 samples for evaluation and 90 for training: uneven shares, and an uneven last batch.
Report run(const TrainerOptions& options, const Job& job = chain()) {
  return fit(options, job, clouds(90), clouds(31, 2));
}

void expect_same(const Report& report, const Report& reference, const std::string& what) {
  EXPECT_LT(difference(report.loss_history, reference.loss_history), kClose) << what;
  ASSERT_TRUE(report.eval) << what;
  EXPECT_NEAR(report.eval->loss, reference.eval->loss, kClose) << what;
  EXPECT_EQ(report.eval->samples, reference.eval->samples) << what;
}

// Half a run under one layout, and the other half under another one.
void expect_each_loads_any_other(const std::vector<Layout>& layouts,
                                 const std::function<TrainerOptions(const Layout&)>& options_for,
                                 const Report& reference) {
  for (const Layout& first : layouts)
    for (const Layout& second : layouts) {
      const Folder folder;
      TrainerOptions options = options_for(first);
      options.checkpoint.dir = folder.path();
      options.epochs = 1;
      run(options);
      options = options_for(second);
      options.checkpoint.dir = folder.path();
      const Report report = run(options);
      EXPECT_GT(report.resumed_from_step, 0);
      expect_same(report, reference, first.describe() + ", then " + second.describe());
    }
}

// The first rank of a tensor axis has the widest parts, and the prediction is its own.
TEST(ShardedRun, PredictedActivationsAreThoseOfEachRanksPartOfTheLayers) {
  const Job divided = tests::job<Divided>(Adam{.lr = 0.01});
  for (const Layout& layout :
       std::vector<Layout>{{.ranks = 2, .tensor = 2},
                           {.ranks = 4, .stages = 2, .tensor = 2},
                           {.ranks = 4, .stages = 2, .tensor = 2, .schedule = "zbh1"},
                           {.ranks = 2, .level = 1},
                           {.ranks = 2, .level = 3},
                           {.ranks = 4, .level = 3, .tensor = 2},
                           {.ranks = 2},
                           {}}) {
    TrainerOptions options = options_of(layout);
    options.epochs = -1;
    options.steps = 3;
    const Report report = run(options, divided);
    ASSERT_EQ(std::ssize(report.activation_bytes), layout.ranks);
    for (size_t rank = 0; rank < report.activation_bytes.size(); ++rank) {
      const auto measured = static_cast<double>(report.activation_bytes[rank]);
      const auto predicted = static_cast<double>(report.predicted_activation_bytes[rank]);
      EXPECT_GT(measured, 0) << layout.describe();
      EXPECT_GE(predicted, measured * 0.95) << layout.describe() << ", rank " << rank;
      if (static_cast<int>(rank) % layout.tensor != 0) continue;
      EXPECT_LE(predicted, measured * 1.05) << layout.describe() << ", rank " << rank;
    }
  }
}

TEST(ShardedRun, EachLevelGivesTheLossesOfOneDevice) {
  const Report reference = run(options_of({}));
  for (const int level : {1, 2, 3})
    for (const int ranks : {2, 3, 5}) {
      const Layout layout{ranks, level};
      expect_same(run(options_of(layout)), reference, layout.describe());
    }
}

TEST(ShardedRun, AccumulatesAndClips) {
  TrainerOptions reference = options_of({});
  reference.clip_norm = 0.05;
  reference.accumulate = 3;
  for (const int level : {1, 2, 3}) {
    TrainerOptions options = options_of({3, level});
    options.clip_norm = reference.clip_norm;
    options.accumulate = reference.accumulate;
    expect_same(run(options), run(reference), std::to_string(level));
  }
}

TEST(ShardedRun, AddsUpTheNormsOfLamb) {
  const Job lamb = chain(Lamb{.lr = 0.01});
  const Report reference = run(options_of({}), lamb);
  for (const int level : {1, 2, 3})
    expect_same(run(options_of({3, level}), lamb), reference, std::to_string(level));
}

// The last batch of an epoch has 2 samples.
TEST(ShardedRun, TakesRanksWithoutSamplesAlong) {
  TrainerOptions reference = options_of({});
  reference.batch = 8;
  for (const Layout& layout : {Layout{5, 1}, Layout{5, 2}, Layout{5, 3}, Layout{6, 3, 2}}) {
    TrainerOptions options = options_of(layout);
    options.batch = reference.batch;
    options.accumulate = 2;
    expect_same(run(options), run(reference), layout.describe());
  }
}

TEST(ShardedRun, ComposesWithStages) {
  const Report reference = run(options_of({}));
  for (const int level : {1, 2, 3}) {
    const Layout layout{4, level, 2};
    expect_same(run(options_of(layout)), reference, layout.describe());
  }
}

// Each of the stages owns the same rows of a tied weight.
TEST(ShardedRun, ComposesWithWeightsTiedOverStages) {
  TrainerOptions reference = options_of({});
  reference.clip_norm = 0.05;
  for (const OptimizerFactory& optimizer :
       {OptimizerFactory(Adam{.lr = 0.01}), OptimizerFactory(Lamb{.lr = 0.01})}) {
    const Job job = tests::job<Tied>(optimizer);
    const Report alone = run(reference, job);
    for (const int level : {1, 2, 3})
      for (const Layout& layout :
           {Layout{4, level, 2}, Layout{6, level, 2}, Layout{6, level, 3}}) {
        TrainerOptions options = options_of(layout);
        options.clip_norm = reference.clip_norm;
        expect_same(run(options, job), alone, layout.describe());
      }
  }
}

TEST(ShardedRun, ComposesWithBackwardsInTwoHalves) {
  for (const Job& job : {chain(), tests::job<Computed>(), tests::job<Tied>()}) {
    // The last batch has 10 samples: some micro-batches have samples on one replica only.
    const Report reference = run(options_of({}), job);
    for (const std::string schedule : {"zbh1", "zbh2", "zbv"})
      for (const int level : {2, 3}) {
        if (schedule == "zbv" && job.model().blocks.size() < 4) continue;
        const Layout layout{.ranks = 4, .level = level, .stages = 2, .schedule = schedule};
        expect_same(run(options_of(layout), job), reference, layout.describe());
      }
  }
}

TEST(ShardedRun, ComposesWithDividedLayers) {
  const Job job = tests::job<Divided>(Adam{.lr = 0.01});
  const Report reference = run(options_of({}), job);
  for (const int level : {0, 1, 2, 3})
    for (const Layout& layout : {Layout{4, level, 1, 2}, Layout{8, level, 2, 2}})
      expect_same(run(options_of(layout), job), reference, layout.describe());
}

TEST(ShardedRun, EvaluatesAndSavesTheAveragesOfItsParameters) {
  const auto averaged = [](const Layout& layout) {
    TrainerOptions options = options_of(layout);
    options.ema_decay = 0.8;
    return options;
  };
  const Report reference = run(averaged({}));
  EXPECT_GT(std::abs(reference.eval->loss - run(options_of({})).eval->loss), 1e-6);
  const std::vector<Layout> layouts = {{2, 1}, {3, 3}, {1, 0}, {4, 2, 2}, {6, 3, 2}};
  for (const Layout& layout : layouts)
    expect_same(run(averaged(layout)), reference, layout.describe());
  expect_each_loads_any_other(layouts, averaged, reference);
}

TEST(ShardedRun, TrainsInSixteenBitsAsCopiesDo) {
  const auto in_bfloat16 = [](const Layout& layout) {
    TrainerOptions options = options_of(layout);
    options.dtype = plan::DType::bfloat16;
    return run(options);
  };
  TrainerOptions copies = options_of({2});
  copies.dtype = plan::DType::bfloat16;
  copies.share_parameters = false;
  const Report reference = run(copies);
  for (const int level : {1, 2, 3})
    EXPECT_LT(difference(in_bfloat16({2, level}).loss_history, reference.loss_history), 0.02)
        << level;
}

TEST(ShardedRun, EachLayoutLoadsTheCheckpointOfAnyOther) {
  const Report reference = run(options_of({}));
  const std::vector<Layout> layouts = {{2, 3}, {3, 1}, {1, 0}, {4, 2}, {4, 3, 2}};
  expect_each_loads_any_other(layouts, options_of, reference);
}

TEST(ShardedRun, TheHashOfTheParametersDoesNotDependOnTheLevel) {
  const std::string hash = run(options_of({2, 1})).parameters_sha256;
  EXPECT_EQ(hash.size(), 64U);
  for (const int level : {2, 3})
    EXPECT_EQ(run(options_of({2, level})).parameters_sha256, hash) << level;
}

// Sharing needs no more memory than levels 1 and 2.
TEST(ShardedRun, RanksOfAHostShareInstead) {
  TrainerOptions options = options_of({2, 2});
  options.share_parameters = true;
  TrainerOptions mirrored = options_of({2});
  EXPECT_EQ(run(options).parameters_sha256, run(mirrored).parameters_sha256);
}

TEST(ShardedRun, RefusesWhatCannotBeDivided) {
  const auto refusal = [](ErrorCode code, const TrainerOptions& options, const Job& job) {
    return message_of(code, [&] { run(options, job); });
  };
  EXPECT_THAT(refusal(ErrorCode::invalid_argument, options_of({2, 3}), tests::job()),
              HasSubstr("blocks"));
}

}  // namespace
}  // namespace trireme::sharded_run_test
