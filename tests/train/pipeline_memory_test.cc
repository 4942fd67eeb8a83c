// Stages whose blocks are measured before the model is cut, whose activations are predicted, and
// which keep, recompute or swap them.
#include "jobs.h"

#include <ATen/core/grad_mode.h>
#include <torch/nn/modules/batchnorm.h>
// This header must come after those of torch.
#include <gmock/gmock.h>

#include <algorithm>
#include <array>
#include <atomic>

#include "../base/expect_error.h"

namespace trireme::pipeline_memory_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using tests::clouds;
using tests::difference;
using tests::fit;
using tests::Folder;

constexpr int kBlocks = 8;
constexpr int64_t kWidth = 96;

// Blocks of a linear layer and ReLU, with dropout or a batch norm if they are wanted.
struct Deep : torch::nn::Module {
  explicit Deep(double dropout = 0, bool has_norms = false, int64_t outputs = 3) : rate(dropout) {
    for (int i = 0; i < kBlocks; ++i) {
      const std::string number = std::to_string(i);
      layers.push_back(register_module(
          "layer" + number,
          torch::nn::Linear(i == 0 ? 5 : kWidth, i + 1 == kBlocks ? outputs : kWidth)));
      if (has_norms && i + 1 < kBlocks)
        norms.push_back(register_module("norm" + number, torch::nn::BatchNorm1d(kWidth)));
    }
  }
  at::Tensor forward(const at::Tensor& x) { return output_of(blocks(), {x}); }
  std::vector<Block> blocks() {
    std::vector<Block> blocks;
    for (size_t i = 0; i < layers.size(); ++i) {
      blocks.push_back(
          {"block" + std::to_string(i), {layers[i].ptr()}, [this, i](const Tensors& x) {
             at::Tensor y = layers[i](x[0]);
             if (i < norms.size()) y = norms[i](y);
             if (i + 1 < layers.size()) y = at::relu(y);
             if (rate > 0) y = at::dropout(y, rate, is_training());
             return Tensors{y};
           }});
      if (i < norms.size()) blocks.back().modules.push_back(norms[i].ptr());
    }
    return blocks;
  }
  double rate;
  std::vector<torch::nn::Linear> layers;
  std::vector<torch::nn::BatchNorm1d> norms;
};

template <typename Net = Deep, typename... Args>
Job deep_job(Args... args) {
  Job job = tests::job();
  job.model = model_factory<Net>(args...);
  return job;
}

TrainerOptions options_of(int ranks, int stages, const std::string& schedule = "1f1b",
                          int microbatches = 4) {
  TrainerOptions options = tests::options(ranks);
  options.strategy = "pipeline";
  options.epochs = -1;
  options.steps = 4;
  options.batch = 32;
  options.division.mesh.pipeline = stages;
  options.division.pipeline.schedule = schedule;
  options.division.pipeline.microbatches = microbatches;
  return options;
}

// An order for two stages that divides backward, and in which all forwards come first.
const std::string kOwnHalves =
    "0F0 0F1 0F2 0F3 0I0 0I1 0W0 0W1 0I2 0W2 0I3 0W3;"
    "1F0 1F1 1F2 1F3 1I0 1W0 1I1 1I2 1W1 1W2 1I3 1W3";

Report run(const TrainerOptions& options, const Job& job = deep_job()) {
  return fit(options, job, clouds(160), clouds(31, 2));
}

TEST(PipelineMemoryRun, PredictedActivationsAreThoseThatAreHeldUnderEverySchedule) {
  for (const std::string schedule :
       {"naive", "gpipe", "1f1b", "interleaved", "zbh1", "zbh2", "zbv"}) {
    const Report report = run(options_of(2, 2, schedule));
    ASSERT_EQ(report.activation_bytes.size(), 2u);
    for (size_t stage = 0; stage < 2; ++stage) {
      const auto measured = static_cast<double>(report.activation_bytes[stage]);
      EXPECT_GT(measured, 0);
      EXPECT_NEAR(static_cast<double>(report.predicted_activation_bytes[stage]), measured,
                  0.05 * measured)
          << schedule << ", stage " << stage;
    }
  }
}

TEST(PipelineMemoryRun, PredictionsHoldWithDropoutNormsAndReplicas) {
  for (const auto& job : {deep_job(0.3), deep_job(0.0, true)})
    for (const std::string schedule : {"gpipe", "zbh1"}) {
      const Report report = run(options_of(4, 2, schedule), job);
      for (size_t rank = 0; rank < 4; ++rank) {
        const auto measured = static_cast<double>(report.activation_bytes[rank]);
        EXPECT_NEAR(static_cast<double>(report.predicted_activation_bytes[rank]), measured,
                    0.05 * measured)
            << schedule << ", rank " << rank;
      }
    }
}

TEST(PipelineMemoryRun, AMeasuredCutGivesTheBitsOfAnyOther) {
  const Job job = deep_job(0.3);
  for (const std::string schedule : {"1f1b", "zbv"}) {
    TrainerOptions options = options_of(2, 2, schedule);
    const std::string hash = run(options, job).parameters_sha256;
    for (const std::string cut : {"auto", "time", "memory"}) {
      options.division.pipeline.cut = cut;
      EXPECT_EQ(run(options, job).parameters_sha256, hash) << schedule << " " << cut;
    }
  }
}

// The first block takes nearly all time, and the others have nearly all parameters.
struct Lopsided : torch::nn::Module {
  at::Tensor forward(const at::Tensor& x) { return output_of(blocks(), {x}); }
  std::vector<Block> blocks() {
    std::vector<Block> blocks = {{"slow", {in.ptr()}, [this](const Tensors& x) {
                                    const at::Tensor grid = at::ones({200, 200}, x[0].options());
                                    at::Tensor sum = grid;
                                    for (int i = 0; i < 4; ++i) sum = sum.matmul(grid) / 200;
                                    return Tensors{in(x[0]) * sum.mean()};
                                  }}};
    for (size_t i = 0; i < layers.size(); ++i)
      blocks.push_back(
          {"light" + std::to_string(i), {layers[i].ptr()}, [this, i](const Tensors& x) {
             return Tensors{layers[i](at::tanh(x[0]))};
           }});
    return blocks;
  }
  torch::nn::Linear in = register_module("in", torch::nn::Linear(5, 40));
  std::vector<torch::nn::Linear> layers = {register_module("layer0", torch::nn::Linear(40, 40)),
                                           register_module("layer1", torch::nn::Linear(40, 40)),
                                           register_module("layer2", torch::nn::Linear(40, 3))};
};

TEST(PipelineMemoryRun, AutoCutsByTime) {
  TrainerOptions options = options_of(2, 2);
  const int64_t alone = (5 * 40 + 40) * 8;
  const Job job = deep_job<Lopsided>();
  EXPECT_GT(run(options, job).parameter_bytes[0], alone);
  options.division.pipeline.cut = "auto";
  EXPECT_EQ(run(options, job).parameter_bytes[0], alone);
  options.division.mesh.pipeline = 1;
  options.replicas = 1;
  EXPECT_GT(run(options, job).parameter_bytes[0], alone);
}

struct Refusing : Deep {
  std::vector<Block> blocks() {
    std::vector<Block> blocks = Deep::blocks();
    blocks[6].forward = [](const Tensors&) -> Tensors {
      throw std::runtime_error("the seventh block takes no samples");
    };
    return blocks;
  }
};

TEST(PipelineMemoryRun, ABlockThatCannotBeMeasuredEndsTheRunWithItsError) {
  TrainerOptions options = options_of(4, 2);
  options.division.pipeline.cut = "time";
  try {
    run(options, deep_job<Refusing>());
    FAIL() << "the run went on";
  } catch (const std::exception& error) {
    EXPECT_THAT(error.what(), HasSubstr("the seventh block takes no samples"));
  }
}

TEST(PipelineMemoryRun, EachPolicyGivesTheSameBitsInLessMemory) {
  const Folder folder;
  for (const Job& job : {deep_job(0.3), deep_job(0.0, true)})
    for (const std::string& schedule :
         {std::string("naive"), std::string("gpipe"), std::string("1f1b"),
          std::string("interleaved"), std::string("zbh1"), std::string("zbh2"), std::string("zbv"),
          kOwnHalves}) {
      TrainerOptions options = options_of(2, 2, schedule);
      const Report plain = run(options, job);
      options.memory.policy = "recompute";
      const Report again = run(options, job);
      options.memory = {.policy = "none", .rules = "block1=recompute,block5=recompute"};
      const Report by_rule = run(options, job);
      options.memory = {.policy = "swap", .swap_dir = folder.path()};
      const Report swapped = run(options, job);
      for (const Report& report : {again, by_rule, swapped}) {
        EXPECT_EQ(report.parameters_sha256, plain.parameters_sha256) << schedule;
        EXPECT_EQ(report.eval->loss, plain.eval->loss) << schedule;  // Running statistics too.
        EXPECT_EQ(report.loss_history, plain.loss_history) << schedule;
      }
      for (size_t stage = 0; stage < 2; ++stage) {
        const std::string what = schedule + ", stage " + std::to_string(stage);
        // The second halves of the last part follow at once, so there is nothing to save there.
        const bool is_split = schedule.starts_with("zb") || schedule == kOwnHalves;
        if (schedule != "naive" && (!is_split || stage == 0)) {
          EXPECT_LT(again.activation_bytes[stage], plain.activation_bytes[stage]) << what;
          EXPECT_LE(by_rule.activation_bytes[stage], plain.activation_bytes[stage]) << what;
        }
        for (const Report& report : {again, by_rule}) {
          const auto measured = static_cast<double>(report.activation_bytes[stage]);
          EXPECT_NEAR(static_cast<double>(report.predicted_activation_bytes[stage]), measured,
                      0.05 * measured)
              << what;
        }
      }
    }
}

// The loss saves something of the size of its input, which no decision about blocks frees.
TEST(PipelineMemoryRun, PredictionsCountWhatTheLossSaves) {
  TrainerOptions options = options_of(2, 2, "gpipe");
  for (const std::string policy : {"none", "recompute"}) {
    options.memory.policy = policy;
    const Report report = run(options, deep_job(0.0, false, int64_t{600}));
    for (size_t stage = 0; stage < 2; ++stage) {
      const auto measured = static_cast<double>(report.activation_bytes[stage]);
      EXPECT_NEAR(static_cast<double>(report.predicted_activation_bytes[stage]), measured,
                  0.05 * measured)
          << policy << ", stage " << stage;
    }
  }
}

TEST(PipelineMemoryRun, ABudgetIsKeptOnEveryStage) {
  TrainerOptions options = options_of(2, 2, "gpipe");
  const Job job = deep_job(0.3);
  const Report plain = run(options, job);
  const int64_t budget =
      *std::max_element(plain.activation_bytes.begin(), plain.activation_bytes.end()) * 8 / 10;
  options.memory = {.policy = "auto", .budget = budget};
  const Report report = run(options, job);
  EXPECT_EQ(report.parameters_sha256, plain.parameters_sha256);
  for (const int64_t bytes : report.activation_bytes) EXPECT_LE(bytes, budget);
}

// Storages are large enough to be moved: 128 rows of 96 numbers have 96 KiB.
TEST(PipelineMemoryRun, SwappingKeepsABudget) {
  const Folder folder;
  for (const std::string schedule : {"gpipe", "1f1b", "zbh1", "zbh2", "zbv"}) {
    TrainerOptions options = options_of(2, 2, schedule);
    options.batch = 512;
    const auto train = [&] { return fit(options, deep_job(), clouds(1024), clouds(31, 2)); };
    const Report plain = train();
    // The second halves of a backward need most of the activations anyway.
    const int percent = schedule.starts_with("zb") ? 100 : 70;
    const int64_t budget =
        *std::max_element(plain.activation_bytes.begin(), plain.activation_bytes.end()) * percent /
        100;
    options.memory = {.policy = "swap", .budget = budget, .swap_dir = folder.path()};
    const Report report = train();
    EXPECT_EQ(report.parameters_sha256, plain.parameters_sha256) << schedule;
    for (const int64_t bytes : report.activation_bytes) EXPECT_LE(bytes, budget) << schedule;
    options.memory.budget = 0;
    const Report least = train();
    EXPECT_EQ(least.parameters_sha256, plain.parameters_sha256) << schedule;
    for (size_t stage = 0; stage < 2; ++stage)
      EXPECT_LE(least.activation_bytes[stage], least.predicted_activation_bytes[stage])
          << schedule;
  }
}

TEST(PipelineMemoryRun, ABudgetThatNoPlanKeepsNamesTheLeastThatWorks) {
  for (const std::string& schedule : {std::string("1f1b"), std::string("zbh1"),
                                      std::string("zbh2"), std::string("zbv"), kOwnHalves}) {
    TrainerOptions options = options_of(4, 2, schedule);
    options.memory = {.policy = "recompute", .budget = 1000};
    const std::string text = message_of(ErrorCode::invalid_argument, [&] { run(options); });
    EXPECT_THAT(text, AllOf(HasSubstr("memory.policy=recompute"), HasSubstr("least that works")));
    options.memory.budget = std::stoll(text.substr(text.find("memory.budget=") + 14));
    const Report report = run(options);
    for (const int64_t bytes : report.activation_bytes)
      EXPECT_LE(bytes, options.memory.budget) << schedule;
  }
}

// Counts the forwards of each block that build a graph.
std::array<std::atomic<int>, kBlocks> forwards;
struct Counting : Deep {
  Counting() : Deep(0.3, true) {}
  std::vector<Block> blocks() {
    std::vector<Block> blocks = Deep::blocks();
    for (size_t i = 0; i < blocks.size(); ++i)
      blocks[i].forward = [run = blocks[i].forward, i](const Tensors& x) {
        if (at::GradMode::is_enabled()) ++forwards[i];
        return run(x);
      };
    return blocks;
  }
};

TEST(PipelineMemoryRun, EachBlockRunsTwiceAlsoIfItsBackwardIsDivided) {
  for (const std::string& schedule :
       {std::string("zbh1"), std::string("zbh2"), std::string("zbv"), kOwnHalves}) {
    const auto forwards_in = [&](int64_t steps) {
      TrainerOptions options = options_of(2, 2, schedule);
      options.steps = steps;
      options.memory.rules = "*=recompute";
      for (auto& each : forwards) each = 0;
      run(options, deep_job<Counting>());
      return std::vector<int>(forwards.begin(), forwards.end());
    };
    // Measuring runs the blocks too, in both jobs alike.
    const std::vector<int> short_run = forwards_in(2), long_run = forwards_in(5);
    for (size_t i = 0; i < short_run.size(); ++i)
      EXPECT_EQ(long_run[i] - short_run[i], 3 * 4 * 2) << schedule << ", block " << i;
  }
}

TEST(PipelineMemoryRun, CompressedBlocksTrainAlmostAlikeIfBackwardIsDivided) {
  for (const std::string schedule : {"zbh1", "zbv"}) {
    TrainerOptions options = options_of(2, 2, schedule);
    // Only float32 is compressed, in storages of 64 KiB and more.
    options.dtype = plan::DType::float32;
    options.batch = 1024;
    const auto train = [&] { return fit(options, deep_job(), clouds(2048), clouds(31, 2)); };
    const Report plain = train();
    options.memory.rules = "*=compress";
    const Report small = train();
    EXPECT_NE(small.parameters_sha256, plain.parameters_sha256) << schedule;
    EXPECT_NEAR(small.eval->loss, plain.eval->loss, 0.01 * plain.eval->loss) << schedule;
    for (size_t stage = 0; stage < 2; ++stage)
      EXPECT_LE(small.activation_bytes[stage], small.predicted_activation_bytes[stage])
          << schedule;
  }
}

TEST(PipelineMemoryRun, ShardsOfParametersAreRecomputedToo) {
  for (const auto& [stages, schedule] :
       {std::pair(1, "1f1b"), std::pair(2, "1f1b"), std::pair(2, "zbh1"), std::pair(2, "zbv")}) {
    TrainerOptions options = options_of(4, stages, schedule);
    options.strategy = stages == 1 ? "sharded" : "pipeline";
    options.division.shard.level = 3;
    options.share_parameters = false;
    const Job job = deep_job(0.3);
    const Report plain = run(options, job);
    options.memory.policy = "recompute";
    const Report again = run(options, job);
    EXPECT_EQ(again.parameters_sha256, plain.parameters_sha256) << stages;
    EXPECT_LT(again.activation_bytes[0], plain.activation_bytes[0]) << stages;
  }
}

}  // namespace
}  // namespace trireme::pipeline_memory_test
