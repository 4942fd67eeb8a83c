// Runs of the Trainer whose ranks divide their state: the losses of one device, and checkpoints
// that any other run can load.
#include "jobs.h"

// This header must come after those of torch.
#include <gmock/gmock.h>

#include "../base/expect_error.h"

namespace trireme::sharded_run_test {
namespace {

using ::testing::HasSubstr;
using tests::clouds;
using tests::difference;
using tests::fit;
using tests::Folder;

constexpr double kClose = 1e-10;

// Four blocks, with a parameter of no dimensions and odd sizes.
struct Chain : torch::nn::Module {
  Chain() {
    layers.push_back(register_module("in", torch::nn::Linear(5, 9)));
    for (int i = 1; i < 3; ++i)
      layers.push_back(register_module("hidden" + std::to_string(i), torch::nn::Linear(9, 9)));
    layers.push_back(register_module("out", torch::nn::Linear(9, 3)));
  }
  at::Tensor forward(const at::Tensor& x) { return output_of(blocks(), {x}); }
  std::vector<Block> blocks() {
    std::vector<Block> blocks;
    for (size_t i = 0; i < layers.size(); ++i)
      blocks.push_back(
          {"block" + std::to_string(i), {layers[i].ptr()}, [this, i](const Tensors& all) {
             const at::Tensor x = layers[i]->forward(all[0]);
             return Tensors{i + 1 < layers.size() ? at::tanh(x) : x};
           }});
    return blocks;
  }
  std::vector<torch::nn::Linear> layers;
};

Job chain(const OptimizerFactory& optimizer = Adam{.lr = 0.01}) {
  return tests::job<Chain>(optimizer);
}

struct Layout {
  int ranks = 1, level = 0, stages = 1;
  std::string describe() const {
    return fmt::format("{} ranks, level {}, {} stages", ranks, level, stages);
  }
};
TrainerOptions options_of(const Layout& layout) {
  TrainerOptions options = tests::options(layout.ranks);
  if (layout.level == 0 && layout.stages == 1) return options;
  options.strategy = layout.stages > 1 ? "pipeline" : "sharded";
  options.division.mesh.pipeline = layout.stages;
  options.division.shard.level = layout.level;
  options.share_parameters = false;
  return options;
}

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
  for (const Layout& first : layouts)
    for (const Layout& second : layouts) {
      const Folder folder;
      TrainerOptions options = options_of(first);
      options.checkpoint.dir = folder.path();
      options.epochs = 1;
      run(options);
      options = options_of(second);
      options.checkpoint.dir = folder.path();
      const Report report = run(options);
      EXPECT_GT(report.resumed_from_step, 0);
      expect_same(report, reference, first.describe() + ", then " + second.describe());
    }
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
  TrainerOptions split = options_of({4, 2, 2});
  split.division.pipeline.schedule = "zbh1";
  EXPECT_THAT(refusal(ErrorCode::unsupported, split, chain()), HasSubstr("shard.level 1"));
  EXPECT_THAT(refusal(ErrorCode::invalid_argument, options_of({2, 3}), tests::job()),
              HasSubstr("blocks"));
}

}  // namespace
}  // namespace trireme::sharded_run_test
