// Runs of the Trainer whose ranks have stages of the model: the same losses as on one device.
#include "jobs.h"

// This header must come after those of torch.
#include <gmock/gmock.h>

#include <trireme/checkpoint/catalogue.h>

#include "../base/expect_error.h"

namespace trireme::pipeline_run_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using tests::Chain;
using tests::clouds;
using tests::difference;
using tests::fit;
using tests::Folder;
using tests::Tied;

struct Normed : torch::nn::Module {
  at::Tensor forward(const at::Tensor& x) { return output_of(blocks(), {x}); }
  std::vector<Block> blocks() {
    return {{"in", {in.ptr()}, [this](const Tensors& x) { return Tensors{in(x[0])}; }},
            {"norm", {norm.ptr()}, [this](const Tensors& x) { return Tensors{norm(x[0])}; }},
            {"out", {out.ptr()}, [this](const Tensors& x) { return Tensors{out(x[0])}; }}};
  }
  torch::nn::Linear in = register_module("in", torch::nn::Linear(5, 8));
  torch::nn::BatchNorm1d norm = register_module("norm", torch::nn::BatchNorm1d(8));
  torch::nn::Linear out = register_module("out", torch::nn::Linear(8, 3));
};

template <typename Net = Chain, typename... Args>
Job chain_job(Args... args) {
  Job job = tests::job();
  job.model = model_factory<Net>(args...);
  return job;
}

TrainerOptions options_of(int replicas, int stages, const std::string& schedule = "1f1b",
                          int microbatches = 0) {
  TrainerOptions options = tests::options(replicas);
  if (stages == 0 || (stages == 1 && microbatches == 0)) return options;
  options.strategy = "pipeline";
  options.division.mesh.pipeline = stages;
  options.division.pipeline.schedule = schedule;
  options.division.pipeline.microbatches = microbatches;
  return options;
}

Report run(const TrainerOptions& options, const Job& job = chain_job()) {
  return fit(options, job, clouds(90), clouds(31, 2));
}

void expect_same(const Report& report, const Report& reference, const std::string& what) {
  EXPECT_LT(difference(report.loss_history, reference.loss_history), 1e-10) << what;
  EXPECT_EQ(report.steps, reference.steps) << what;
  ASSERT_TRUE(report.eval) << what;
  EXPECT_NEAR(report.eval->loss, reference.eval->loss, 1e-10) << what;
  EXPECT_EQ(report.eval->accuracy, reference.eval->accuracy) << what;
  EXPECT_EQ(report.eval->samples, reference.eval->samples) << what;
}

TEST(PipelineRun, AnyCutAndScheduleGivesTheLossesOfOneDevice) {
  const Report reference = run(options_of(1, 0));
  for (const std::string schedule : {"naive", "gpipe", "1f1b", "zbh1", "zbh2"})
    for (const int stages : {1, 2, 3, 6})
      for (const int microbatches : {0, 1, 3})
        expect_same(run(options_of(stages, stages, schedule, microbatches)), reference,
                    fmt::format("{} {} {}", schedule, stages, microbatches));
}

TEST(PipelineRun, StagesOfSeveralPartsGiveTheLossesOfOneDevice) {
  const Report reference = run(options_of(1, 0));
  for (const std::string schedule : {"interleaved", "zbv"})
    for (const int stages : {1, 2, 3})
      for (const int microbatches : {0, 3})
        expect_same(run(options_of(stages, stages, schedule, microbatches)), reference,
                    fmt::format("{} {} {}", schedule, stages, microbatches));
}

TEST(PipelineRun, AnOrderOfOnesOwnGivesTheLossesOfOneDevice) {
  TrainerOptions options = options_of(2, 2, "0F0 0F1 0B1 0B0; 1F0 1F1 1B1 1B0");
  expect_same(run(options), run(options_of(1, 0)), "text");
  options.division.pipeline.microbatches = 3;
  EXPECT_THAT(message_of(ErrorCode::invalid_argument, [&] { run(options); }),
              AllOf(HasSubstr("pipeline.microbatches is 3"), HasSubstr("2")));
}

TEST(PipelineRun, BatchNormsMoveOnceForAllMicroBatches) {
  // One micro-batch is what one device computes. More of them normalise each by its own samples,
  // and the running statistics still see the whole batch.
  const Job job = chain_job<Normed>();
  const Report reference = run(options_of(1, 0), job);
  expect_same(run(options_of(2, 2, "1f1b", 1), job), reference, "one micro-batch");
  const Report parts = run(options_of(1, 1, "1f1b", 4), job);
  EXPECT_EQ(run(options_of(2, 2, "1f1b", 4), job).parameters_sha256, parts.parameters_sha256);
  EXPECT_GT(difference(parts.loss_history, reference.loss_history), 1e-6);
}

struct Silent : Chain {
  std::vector<Block> blocks() {
    std::vector<Block> blocks = Chain::blocks();
    blocks[1].forward = [](const Tensors&) { return Tensors{}; };
    return blocks;
  }
};

TEST(PipelineRun, ABlockWithoutOutputIsNamed) {
  EXPECT_THAT(
      message_of(ErrorCode::invalid_argument, [] { run(options_of(2, 2), chain_job<Silent>()); }),
      AllOf(HasSubstr("block1"), HasSubstr("no tensor")));
}

TEST(PipelineRun, AMeshOfStagesAndReplicasGivesTheLossesOfOneDevice) {
  const Report reference = run(options_of(1, 0));
  for (const int replicas : {2, 3}) {
    const Report report = run(options_of(2 * replicas, 2));
    expect_same(report, reference, std::to_string(replicas));
    EXPECT_EQ(report.world_size, 2 * replicas);
  }
}

TEST(PipelineRun, AccumulationClippingAndATiedWeightAreThoseOfOneDevice) {
  TrainerOptions reference = options_of(1, 0), cut = options_of(4, 2);
  for (TrainerOptions* const options : {&reference, &cut}) {
    options->clip_norm = 0.05;
    options->accumulate = 2;
  }
  expect_same(run(cut), run(reference), "chain");
  cut = options_of(3, 3);
  cut.clip_norm = 0.05;
  expect_same(run(cut, chain_job<Tied>()), run(reference, chain_job<Tied>()), "tied");
  for (const int replicas : {2, 3}) {
    cut = options_of(2 * replicas, 2);
    cut.clip_norm = 0.05;
    expect_same(run(cut, chain_job<Tied>()), run(reference, chain_job<Tied>()),
                fmt::format("tied, {} replicas", replicas));
  }
}

TEST(PipelineRun, TiedWeightsOfSixteenBitsStayTied) {
  TrainerOptions alone = options_of(1, 1), cut = options_of(4, 2);
  alone.dtype = cut.dtype = plan::DType::bfloat16;
  const Report reference = run(alone, chain_job<Tied>()), report = run(cut, chain_job<Tied>());
  EXPECT_LT(difference(report.loss_history, reference.loss_history), 0.02);
  EXPECT_LT(report.loss_history.back(), report.loss_history.front());
}

TEST(PipelineRun, TheSameParametersHaveTheSameHashUnderEveryCut) {
  const std::string hash = run(options_of(1, 1, "gpipe", 4)).parameters_sha256;
  EXPECT_EQ(hash.size(), 64u);
  for (const int stages : {2, 3, 6})
    EXPECT_EQ(run(options_of(stages, stages, "gpipe", 4)).parameters_sha256, hash) << stages;
}

TEST(PipelineRun, RandomNumbersDoNotDependOnTheCut) {
  const Job job = chain_job<Chain>(0.3);
  const std::string hash = run(options_of(1, 1, "1f1b", 4), job).parameters_sha256;
  for (const int stages : {2, 3})
    EXPECT_EQ(run(options_of(stages, stages, "1f1b", 4), job).parameters_sha256, hash) << stages;
  const Report reference = run(options_of(1, 1, "1f1b", 4), job);
  for (const std::string schedule : {"gpipe", "zbh1"})  // They add micro-batches up differently.
    expect_same(run(options_of(2, 2, schedule, 4), job), reference, schedule);
}

TEST(PipelineRun, EachCutLoadsTheCheckpointOfAnyOther) {
  const Report reference = run(options_of(1, 0));
  const std::vector<TrainerOptions> layouts = {options_of(2, 2), options_of(1, 0),
                                               options_of(3, 3), options_of(4, 2)};
  for (const TrainerOptions& first : layouts)
    for (const TrainerOptions& second : layouts) {
      const Folder folder;
      TrainerOptions before = first, after = second;
      before.checkpoint.dir = after.checkpoint.dir = folder.path();
      before.epochs = -1;
      before.steps = 5;
      run(before);
      const Report report = run(after);
      EXPECT_EQ(report.resumed_from_step, 5);
      EXPECT_LT(difference(report.loss_history, reference.loss_history), 1e-10);
    }
}

TEST(PipelineRun, EvaluatesTheAveragesOfItsParameters) {
  const auto averaged = [](TrainerOptions options) {
    options.ema_decay = 0.8;
    return options;
  };
  for (const Job& job : {chain_job(), chain_job<Tied>()}) {
    const Report reference = run(averaged(options_of(1, 0)), job);
    EXPECT_GT(std::abs(reference.eval->loss - run(options_of(1, 0), job).eval->loss), 1e-6);
    for (const auto& [ranks, stages] : {std::pair(2, 2), std::pair(3, 3), std::pair(4, 2)})
      expect_same(run(averaged(options_of(ranks, stages)), job), reference,
                  fmt::format("{} ranks, {} stages", ranks, stages));
  }
}

TEST(PipelineRun, WrongNumbersAreRefusedBeforeTheFirstStep) {
  EXPECT_THAT(message_of(ErrorCode::invalid_argument, [] { run(options_of(3, 2)); }),
              AllOf(HasSubstr("mesh.pipeline 2"), HasSubstr("3")));
  EXPECT_THAT(message_of(ErrorCode::invalid_argument, [] { run(options_of(7, 7)); }),
              AllOf(HasSubstr("6"), HasSubstr("7")));
  EXPECT_THAT(message_of(ErrorCode::invalid_argument, [] { run(options_of(2, 2, "1b1f")); }),
              AllOf(HasSubstr("pipeline.schedule"), HasSubstr("1f1b")));
  EXPECT_THAT(message_of(ErrorCode::invalid_argument, [] { run(options_of(2, 2), tests::job()); }),
              HasSubstr("names no blocks"));
}

}  // namespace
}  // namespace trireme::pipeline_run_test
