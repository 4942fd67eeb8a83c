// The activations of stages on paper, and the decisions that keep them within a budget.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fmt/format.h>
#include <trireme/plan/mesh_plan.h>
#include <trireme/plan/pipeline_decisions.h>
#include <trireme/plan/pipeline_times.h>
#include <algorithm>

#include "../base/expect_error.h"

namespace trireme::plan::pipeline_memory_test {
namespace {

using enum MemoryDecision;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int64_t kTensor = 100, kInner = 40;

// Linear layers with a function whose result is saved: each block saves its input, its output and
// something inside. The batch and the loss count nothing.
MeasuredChain chain_of(int blocks) {
  MeasuredChain chain;
  for (int i = 0; i < blocks; ++i) {
    chain.value_bytes.push_back(i == 0 ? 0 : kTensor);
    chain.blocks.push_back({.name = fmt::format("block{}", i),
                            .forward_seconds = 1,
                            .backward_seconds = 2,
                            .inputs = {i},
                            .outputs = {i + 1},
                            .needs_input_gradient = i > 0,
                            .saved = {{i, i + 1}, kInner},
                            .between_halves = {{i}, kTensor}});
  }
  chain.value_bytes.push_back(0);
  return chain;
}

Partition even_cut(const PipelinePlan& plan, const MeasuredChain& chain) {
  std::vector<BlockCost> costs;
  for (const MeasuredBlock& block : chain.blocks)
    costs.push_back({.name = block.name, .parameters = 1});
  return partition(costs, {.parts = plan.parts(), .cut = "parameters"});
}

std::vector<int64_t> peaks_of(const PipelinePlan& plan, const MeasuredChain& chain) {
  const Partition cut = even_cut(plan, chain);
  std::vector<int64_t> peaks;
  for (int stage = 0; stage < plan.facts.stages; ++stage)
    peaks.push_back(peak_activations(plan, cut, chain, {}, stage));
  return peaks;
}

TEST(PipelineMemory, AStageHoldsAsManyMicroBatchesAsItsScheduleSays) {
  const int stages = 4, microbatches = 8;
  const MeasuredChain chain = chain_of(2 * stages);
  // A part holds its input, the tensor in its middle, its output, and the inner bytes.
  const int64_t first = 2 * (kTensor + kInner), middle = first + kTensor,
                last = 2 * (kTensor + kInner);
  const auto of = [&](const std::string& schedule) {
    return peaks_of(plan_pipeline({schedule, stages, microbatches}), chain);
  };
  EXPECT_THAT(of("naive"), ElementsAre(first, middle, middle, last));
  EXPECT_THAT(of("gpipe"), ElementsAre(8 * first, 8 * middle, 8 * middle, 8 * last));
  EXPECT_THAT(of("1f1b"), ElementsAre(4 * first, 3 * middle, 2 * middle, last));
}

TEST(PipelineMemory, HalvesOfABackwardHoldWhatIsLeft) {
  // Forward, first half, second half, with two micro-batches.
  const PipelinePlan plan = plan_pipeline({"zbh1", 2, 2});
  ASSERT_TRUE(plan.splits_backward());
  const MeasuredChain chain = chain_of(2);
  int64_t held = 0, peak = 0;
  for (const PipelineStep& step : plan.steps[1]) {
    // Its input and inner bytes; between the halves its input and the kept gradient.
    if (step.task == PipelineTask::forward) held += kTensor + kInner;
    if (step.task == PipelineTask::input_gradient) held += kTensor - kInner;
    peak = std::max(peak, held);
    if (step.task == PipelineTask::weight_gradient) held -= 2 * kTensor;
    if (step.task == PipelineTask::backward) held -= kTensor + kInner;
  }
  EXPECT_EQ(peaks_of(plan, chain)[1], peak);
  EXPECT_FALSE(plan_pipeline({"1f1b", 2, 2}).splits_backward());
}

TEST(PipelineMemory, PartsOfOneStageShareTheTensorBetweenThem) {
  // In a V the second stage has the parts 1 and 2, which are neighbours.
  const PipelinePlan plan = plan_pipeline({"zbv", 2, 1});
  const MeasuredChain chain = chain_of(4);
  const int64_t both = 3 * kTensor + 2 * kInner;  // Not 4: one tensor is between them.
  EXPECT_GE(peaks_of(plan, chain)[1], both);
  EXPECT_LT(peaks_of(plan, chain)[1], both + 2 * kTensor);
}

TEST(PipelineMemory, MicroBatchesThatArePartsHoldAreThoseOfTheSchedule) {
  EXPECT_THAT(microbatches_held(plan_pipeline({"1f1b", 4, 8})), ElementsAre(4, 3, 2, 1));
  EXPECT_THAT(microbatches_held(plan_pipeline({"gpipe", 3, 5})), Each(5));
  EXPECT_THAT(microbatches_held(plan_pipeline({"naive", 3, 5})), Each(1));
  const PipelinePlan plan = plan_pipeline({"interleaved", 2, 4});
  const std::vector<int> held = microbatches_held(plan), all = simulate(plan).peak_microbatches;
  EXPECT_LE(std::max(held[0], held[2]), all[0]);
  EXPECT_GE(held[0] + held[2], all[0]);
}

TEST(PipelineMemory, ACutByMemoryCountsWhatTheScheduleHolds) {
  std::vector<BlockCost> blocks;
  for (int i = 0; i < 9; ++i)
    blocks.push_back({.name = fmt::format("block{}", i), .activation_bytes = 10});
  // The first stage holds two micro-batches, so it gets half as many blocks.
  const PipelinePlan plan = plan_pipeline({"1f1b", 2, 4});
  const Partition even = cut_of("memory", plan, blocks);
  EXPECT_EQ(even.first[1], 3);
  EXPECT_THAT(even.limit, HasSubstr("part 0 ('block0' to 'block2') needs the most memory"));
  blocks.back().activation_bytes = 1000;
  EXPECT_THAT(cut_of("memory", plan, blocks).limit, HasSubstr("'block8' alone has"));
}

TEST(PipelineMemory, AMeasuredChainIsTheMemoryOfAChain) {
  const std::vector<BlockMemory> memory = memory_of(chain_of(3), 0, 3);
  ASSERT_EQ(memory.size(), 3u);
  EXPECT_FALSE(memory[0].saves_input);  // The batch.
  EXPECT_TRUE(memory[0].saves_output);
  EXPECT_EQ(memory[1].input_bytes, kTensor);
  EXPECT_EQ(memory[1].inner_bytes, kInner);
  std::vector<int64_t> bytes, entry_bytes;
  for (const ActivationCost& cost : activation_costs(chain_of(3))) {
    bytes.push_back(cost.bytes);
    entry_bytes.push_back(cost.entry_bytes);
  }
  EXPECT_THAT(bytes, ElementsAre(kTensor + kInner, kTensor + kInner, kInner));
  // Behind a cut, a part holds its input besides.
  EXPECT_THAT(entry_bytes, ElementsAre(0, kTensor, kTensor));
}

// Logits are large, and the loss saves something of their size. A micro-batch in backward has
// freed it; the others have not.
TEST(PipelineMemory, WhatTheLossSavesStaysUnderEveryDecision) {
  MeasuredChain chain = chain_of(4);
  const PipelinePlan plan = plan_pipeline({"gpipe", 2, 4});
  const Partition cut = even_cut(plan, chain);
  for (const MemoryDecision decision : {keep, recompute, swap, compress}) {
    const std::vector<MemoryDecision> all(4, decision);
    chain.blocks.back().saved_by_loss = {};
    const int64_t without = peak_activations(plan, cut, chain, all, 1);
    chain.blocks.back().saved_by_loss.inner_bytes = 1000;
    const int64_t with = peak_activations(plan, cut, chain, all, 1);
    EXPECT_GE(with, without + 3 * 1000);
    EXPECT_LE(with, without + 4 * 1000);
  }
}

TEST(PipelineMemory, SmallStoragesStayIfABlockIsSwappedOrCompressed) {
  MeasuredChain chain = chain_of(4);
  const PipelinePlan plan = plan_pipeline({"gpipe", 2, 4});
  const Partition cut = even_cut(plan, chain);
  const auto peak = [&](MemoryDecision decision) {
    return peak_activations(plan, cut, chain, std::vector<MemoryDecision>(4, decision), 0);
  };
  const int64_t kept = peak(keep);
  EXPECT_LT(peak(swap), kept);
  for (MeasuredBlock& block : chain.blocks) block.saved.still_bytes = block.saved.inner_bytes;
  const int64_t tensors_away = peak(swap);
  EXPECT_LT(tensors_away, kept);
  chain.least_moved_bytes = kTensor + 1;
  EXPECT_EQ(peak(swap), kept);
  EXPECT_EQ(peak(compress), kept);
  chain.least_moved_bytes = kTensor;
  EXPECT_EQ(peak(swap), tensors_away);
}

// The stage has part 1 alone, whose block saves its input and inner bytes. Between forward and the
// first half it holds the input; from then on the second half's part of the activations.
TEST(PipelineMemory, TheFirstHalfBringsBackWhatTheSecondOneNeeds) {
  const PipelinePlan plan = plan_pipeline({"zbh2", 2, 4});
  MeasuredChain chain = chain_of(2);
  chain.blocks[1].saved.inner_bytes = 1000;
  chain.blocks[1].between_halves.inner_bytes = 300;
  const Partition cut = even_cut(plan, chain);
  for (const int64_t extra : {0, 50}) {
    chain.blocks[1].first_half_extra_bytes = extra;
    int64_t waiting = 0, between = 0, peak = 0;
    for (const PipelineStep& step : plan.steps[1]) {
      if (step.task == PipelineTask::forward) ++waiting;
      int64_t now = waiting * kTensor + between * (kTensor + 300);
      if (step.task == PipelineTask::input_gradient) {
        peak = std::max(peak, now + 1000 + extra);
        --waiting;
        ++between;
        now = waiting * kTensor + between * (kTensor + 300);
      }
      peak = std::max(peak, now);
      if (step.task == PipelineTask::weight_gradient) --between;
    }
    EXPECT_EQ(peak_activations(plan, cut, chain, {keep, recompute}, 1), peak);
  }
}

// The inputs of the first part need no gradients, so its whole backward is in the second half.
TEST(PipelineMemory, APartWithoutAFirstHalfBringsItsBlocksBackInTheSecond) {
  const PipelinePlan plan = plan_pipeline({"zbh1", 2, 2});
  MeasuredChain chain = chain_of(4);
  chain.blocks[0].saved.inner_bytes = chain.blocks[1].saved.inner_bytes = 1000;
  const Partition cut = even_cut(plan, chain);
  const auto peak = [&](const std::vector<MemoryDecision>& decisions) {
    return peak_activations(plan, cut, chain, decisions, 0);
  };
  const std::vector<MemoryDecision> again(4, recompute);
  EXPECT_LT(peak(again), peak({}) - 1000);
  EXPECT_GE(peak(again), 1000);  // One block at a time is there.
  EXPECT_LT(peak(again), 2000);
}

MemoryPlanOptions options_of(const std::string& policy, int64_t budget = 0,
                             std::vector<MemoryRule> rules = {}) {
  MemoryPlanOptions options;
  options.policy = policy;
  options.budget_bytes = budget;
  options.rules = std::move(rules);
  return options;
}

TEST(PipelineDecisions, WithoutABudgetAllButWhatReturnsAtOnceIsRecomputed) {
  const MeasuredChain chain = chain_of(4);
  const PipelinePlan plan = plan_pipeline({"1f1b", 2, 4});
  const Partition cut = even_cut(plan, chain);
  EXPECT_THAT(plan_pipeline_memory(plan, cut, chain, options_of("recompute")).decisions,
              ElementsAre(recompute, recompute, recompute, keep));
  const PipelinePlan split = plan_pipeline({"zbh1", 2, 4});
  EXPECT_THAT(plan_pipeline_memory(split, cut, chain, options_of("recompute")).decisions,
              ElementsAre(recompute, recompute, recompute, keep));
  const PipelinePlan gpipe = plan_pipeline({"gpipe", 2, 4});
  EXPECT_THAT(plan_pipeline_memory(gpipe, cut, chain, options_of("recompute")).decisions,
              Each(recompute));
  EXPECT_THAT(
      plan_pipeline_memory(plan, cut, chain, options_of("none", 0, {{"block*1", recompute}}))
          .decisions,
      ElementsAre(keep, recompute, keep, keep));
}

TEST(PipelineDecisions, ABudgetIsKeptWithTheLeastAddedTime) {
  MeasuredChain chain = chain_of(6);
  chain.blocks[1].saved.inner_bytes = 1000;
  chain.blocks[0].forward_seconds = 0.001;
  const PipelinePlan plan = plan_pipeline({"1f1b", 2, 4});
  const Partition cut = even_cut(plan, chain);
  const int64_t all = peaks_of(plan, chain)[0];
  const PipelineMemory kept = plan_pipeline_memory(plan, cut, chain, options_of("recompute", all));
  EXPECT_THAT(kept.decisions, Each(keep));
  const PipelineMemory less =
      plan_pipeline_memory(plan, cut, chain, options_of("recompute", all - 1));
  EXPECT_THAT(less.decisions, ElementsAre(recompute, keep, keep, keep, keep, keep));
  const PipelineMemory half =
      plan_pipeline_memory(plan, cut, chain, options_of("recompute", all - 900));
  EXPECT_EQ(half.decisions[1], recompute);
  for (const PipelineMemory& memory : {kept, less, half})
    for (int stage = 0; stage < 2; ++stage)
      EXPECT_EQ(memory.peak_bytes[static_cast<size_t>(stage)],
                peak_activations(plan, cut, chain, memory.decisions, stage));
  EXPECT_LE(half.peak_bytes[0], all - 900);
}

TEST(PipelineDecisions, TheLeastBudgetThatWorksIsSaidAndWorks) {
  for (const auto& [blocks, schedule] :
       {std::pair(4, "gpipe"), std::pair(24, "gpipe"), std::pair(4, "zbh1"), std::pair(24, "zbh2"),
        std::pair(8, "zbv")}) {
    const MeasuredChain chain = chain_of(blocks);
    const PipelinePlan plan = plan_pipeline({schedule, 2, 4});
    const Partition cut = even_cut(plan, chain);
    const std::string text = message_of(ErrorCode::invalid_argument, [&] {
      plan_pipeline_memory(plan, cut, chain, options_of("recompute", 10));
    });
    EXPECT_THAT(text, AllOf(HasSubstr("memory.policy=recompute"), HasSubstr("least that works")));
    const size_t at = text.find("memory.budget=");
    ASSERT_NE(at, std::string::npos) << text;
    const int64_t least = std::stoll(text.substr(at + 14));
    const PipelineMemory memory =
        plan_pipeline_memory(plan, cut, chain, options_of("recompute", least));
    EXPECT_EQ(std::ranges::max(memory.peak_bytes), least);
    EXPECT_THROW(plan_pipeline_memory(plan, cut, chain, options_of("recompute", least - 1)),
                 Error);
  }
}

TEST(PipelineDecisions, AutoTakesTheCheaperOfTheTwoWays) {
  MeasuredChain chain = chain_of(4);
  chain.blocks[0].forward_seconds = 100;
  const PipelinePlan plan = plan_pipeline({"gpipe", 2, 4});
  MemoryPlanOptions options = options_of("auto", 950);
  // Copies of the first block hide behind its forward; those of the second one do not.
  options.out_bytes_per_second = options.in_bytes_per_second = 10;
  const auto memory = plan_pipeline_memory(plan, even_cut(plan, chain), chain, options);
  EXPECT_EQ(memory.decisions[0], swap);
  EXPECT_EQ(memory.decisions[1], recompute);
}

TEST(PipelineDecisions, WrongInputIsNamed) {
  const MeasuredChain chain = chain_of(4);
  const PipelinePlan plan = plan_pipeline({"1f1b", 2, 4});
  const Partition cut = even_cut(plan, chain);
  EXPECT_THAT(message_of(ErrorCode::invalid_argument,
                         [&] {
                           plan_pipeline_memory(plan, cut, chain,
                                                options_of("none", 0, {{"layer*", recompute}}));
                         }),
              AllOf(HasSubstr("layer*"), HasSubstr("block0")));
}

}  // namespace
}  // namespace trireme::plan::pipeline_memory_test
