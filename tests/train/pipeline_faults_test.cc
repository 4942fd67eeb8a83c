// Stages that throw, change what they got, and change shapes from batch to batch.
#include "jobs.h"
// This header must come after those of torch.
#include <gmock/gmock.h>

#include "../base/expect_error.h"
#include "throwing.h"

namespace trireme::pipeline_faults_test {
namespace {

using ::testing::HasSubstr;
using tests::clouds;
using tests::difference;
using tests::fit;
using tests::Throwing;

TrainerOptions options_of(int ranks, int stages, const std::string& schedule,
                          int microbatches = 4) {
  TrainerOptions options = tests::options(ranks);
  options.strategy = "pipeline";
  options.division.mesh.pipeline = stages;
  options.division.pipeline = {schedule, microbatches, 0, "parameters"};
  return options;
}

TEST(PipelineFaults, AStageThatThrowsEndsTheRunWithItsErrorUnderEverySchedule) {
  for (const std::string schedule :
       {"naive", "gpipe", "1f1b", "interleaved", "zbh1", "zbh2", "zbv"})
    for (const auto& [ranks, stages] : {std::pair(3, 3), std::pair(4, 2)})
      for (const int block : {0, 3, 5})
        for (const std::string place : {"forward", "backward"}) {
          Job job = tests::job();
          job.model = model_factory<Throwing>(block, 7, place);
          std::string message;
          try {
            fit(options_of(ranks, stages, schedule), job, clouds(90));
          } catch (const std::exception& error) {
            message = error.what();
          }
          EXPECT_THAT(message, HasSubstr(fmt::format("block{} gives up in {}", block, place)))
              << schedule << ", block " << block << " of " << stages << " stages";
        }
}

// Each block but the first one begins in place, on the output of the linear layer before it.
struct InPlace : Throwing {
  InPlace() : Throwing(-1, 0, "") {}
  at::Tensor forward(const at::Tensor& x) { return output_of(blocks(), {x}); }
  std::vector<Block> blocks() {
    std::vector<Block> blocks;
    for (int i = 0; i < 6; ++i)
      blocks.push_back(
          {"block" + std::to_string(i), {layers[i].ptr()}, [this, i](const Tensors& all) {
             at::Tensor x = all[0];
             return Tensors{layers[i](i > 0 ? x.relu_() : x)};
           }});
    return blocks;
  }
};

// The number of columns between the blocks depends on the samples.
struct Changing : torch::nn::Module {
  at::Tensor forward(const at::Tensor& x) { return output_of(blocks(), {x}); }
  std::vector<Block> blocks() {
    return {{"wide",
             {in.ptr()},
             [this](const Tensors& x) {
               const int64_t times = 1 + std::abs(x[0].sum().item<int64_t>()) % 4;
               return Tensors{in(x[0]).repeat({1, times})};
             }},
            {"tanh", {}, [](const Tensors& x) { return Tensors{at::tanh(x[0]), x[0].sin()}; }},
            {"narrow",
             {out.ptr()},
             [this](const Tensors& x) {
               const at::Tensor sum = (x[0] * x[1]).view({x[0].size(0), -1, 6}).sum(1);
               return Tensors{out(sum)};
             }},
            {"last", {last.ptr()}, [this](const Tensors& x) { return Tensors{last(x[0])}; }}};
  }
  torch::nn::Linear in = register_module("in", torch::nn::Linear(5, 6)),
                    out = register_module("out", torch::nn::Linear(6, 4)),
                    last = register_module("last", torch::nn::Linear(4, 3));
};

void expect_losses_of_one_stage(const Job& job) {
  const Report reference = fit(options_of(1, 1, "gpipe"), job, clouds(90), clouds(31, 2));
  for (const std::string schedule : {"naive", "gpipe", "1f1b", "interleaved", "zbh1", "zbv"})
    for (const auto& [ranks, stages] : {std::pair(2, 2), std::pair(4, 2)}) {
      const Report report =
          fit(options_of(ranks, stages, schedule), job, clouds(90), clouds(31, 2));
      if (ranks == stages) {
        EXPECT_LT(difference(report.loss_history, reference.loss_history), 1e-10) << schedule;
        EXPECT_NEAR(report.eval->loss, reference.eval->loss, 1e-10) << schedule;
      }
      EXPECT_LT(report.loss_history.back(), report.loss_history.front()) << schedule;
    }
}

TEST(PipelineFaults, EveryScheduleTakesBlocksThatChangeTheirInputInPlace) {
  Job job = tests::job();
  job.model = model_factory<InPlace>();
  expect_losses_of_one_stage(job);
}

TEST(PipelineFaults, EveryScheduleTakesShapesThatChangeFromBatchToBatch) {
  Job job = tests::job(SGD{.lr = 0.05, .momentum = 0.5});
  job.model = model_factory<Changing>();
  expect_losses_of_one_stage(job);
}

}  // namespace
}  // namespace trireme::pipeline_faults_test
