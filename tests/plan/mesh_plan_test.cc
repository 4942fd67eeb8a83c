// Plans of meshes: each stage's parameters, who updates them, and what travels.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <trireme/plan/mesh_plan.h>

#include "../base/expect_error.h"

namespace trireme::plan::mesh_plan_test {
namespace {

using ::testing::HasSubstr;

constexpr int kBlocks = 4;
constexpr int64_t kWidth = 256, kElements = kWidth * kWidth;

// Equal blocks of one weight each; with `tied`, the last block has the first one's weight as well.
DataParallelFacts facts_of(int ranks, const std::string& path, bool tied = false) {
  DataParallelFacts facts;
  facts.placement = path == "tcp" ? each_alone(ranks, path) : on_one_host(ranks, path);
  for (int i = 0; i < kBlocks; ++i) {
    facts.parameters.push_back({"w" + std::to_string(i), {kWidth, kWidth}});
    facts.blocks.push_back({.name = "block" + std::to_string(i), .parameters = kElements});
    facts.block_parameters.push_back({i});
  }
  if (tied) facts.block_parameters.back() = {0, kBlocks - 1};
  facts.kept_types.assign(facts.parameters.size(), DType::float32);
  return facts;
}

EnginePlan plan_of(const DataParallelFacts& facts) {
  EnginePlan plan = plan_mesh(facts);
  check(plan);
  return plan;
}

int64_t sent(const EnginePlan& plan, int rank, const std::string& name) {
  int64_t bytes = 0;
  for (const Operation& operation : plan.operations)
    if (operation.name == name) bytes += operation.bytes_sent[static_cast<size_t>(rank)];
  return bytes;
}
int64_t count(const EnginePlan& plan, int rank, const std::string& name) {
  int64_t operations = 0;
  for (const Operation& operation : plan.operations)
    if (operation.name == name) operations += operation.operations[static_cast<size_t>(rank)];
  return operations;
}

// docs/sharding.md, "Bytes that travel".
TEST(MeshPlan, SendsTheBytesOfTheFormulasForEachLevel) {
  const int64_t model = kBlocks * kElements * 4;
  for (const auto& [ranks, path] :
       {std::pair(2, "threads"), std::pair(4, "shm"), std::pair(2, "tcp"), std::pair(4, "tcp")})
    for (const int level : {1, 2, 3}) {
      DataParallelFacts facts = facts_of(ranks, path);
      facts.shard_level = level;
      const EnginePlan plan = plan_of(facts);
      EXPECT_TRUE(plan.knows_all_operations);
      for (int rank = 0; rank < ranks; ++rank) {
        EXPECT_EQ(plan.shards.elements_of(rank), kBlocks * kElements / ranks);
        EXPECT_EQ(count(plan, rank, "reduce_scatter"), kBlocks);
        EXPECT_EQ(sent(plan, rank, "reduce_scatter"), model / ranks * (ranks - 1));
        // The last block stays from forward to backward.
        const int64_t fetches = level == 3 ? 2 * kBlocks - 1 : kBlocks;
        EXPECT_EQ(count(plan, rank, "all_gather"), fetches);
        EXPECT_EQ(sent(plan, rank, "all_gather"), fetches * kElements * 4 / ranks * (ranks - 1));
      }
    }
}

TEST(MeshPlan, ReducesCopiesInTheBucketsOfTheirStage) {
  DataParallelFacts facts = facts_of(4, "threads");
  facts.division.mesh.pipeline = 2;
  const EnginePlan plan = plan_of(facts);
  ASSERT_EQ(plan.stages.size(), 2U);
  EXPECT_EQ(plan.stages[1].params, (std::vector<int>{2, 3}));
  EXPECT_EQ(plan.shards.teams, (std::vector<std::vector<int>>{{0, 1}, {2, 3}}));
  int64_t elements = 0;
  for (const Operation& operation : plan.operations)
    if (operation.content.ends_with("stage 1") && operation.dtype == DType::float32) {
      EXPECT_EQ(operation.operations, (std::vector<int64_t>{0, 1, 0, 1}));
      elements += operation.elements;
    }
  EXPECT_EQ(elements, 2 * (kElements + 1));  // A flag for each parameter.
  EXPECT_FALSE(plan.knows_all_operations);
  EXPECT_THAT(plan.describe(), HasSubstr("the activations between stages"));
}

TEST(MeshPlan, CountsTheMessagesOfTheSchedule) {
  for (const std::string schedule : {"1f1b", "zbv"}) {
    DataParallelFacts facts = facts_of(4, "shm");
    facts.division.mesh.pipeline = 2;
    facts.division.pipeline.schedule = schedule;
    facts.division.pipeline.microbatches = 5;
    const EnginePlan plan = plan_of(facts);
    for (int rank = 0; rank < 4; ++rank)
      EXPECT_EQ(count(plan, rank, "send"), plan.pipeline->messages_sent(rank % 2)) << schedule;
  }
}

// Each stage updates the rows of a tied weight; the first one counts them.
TEST(MeshPlan, AddsUpTheRowsOfATiedWeightBetweenStages) {
  for (const int level : {0, 1, 3}) {
    DataParallelFacts facts = facts_of(4, "threads", /*tied=*/true);
    facts.division.mesh.pipeline = 2;
    facts.shard_level = level;
    const EnginePlan plan = plan_of(facts);
    const int64_t rows = level == 0 ? kElements : kElements / 2;
    int messages = 0;
    for (const Operation& operation : plan.operations)
      if (operation.content == "gradients of 'w0'") {
        EXPECT_EQ(operation.bytes_sent, std::vector<int64_t>(4, 4 * (rows + 1)));
        ++messages;
      }
    EXPECT_EQ(messages, 1);
    for (int rank = 0; rank < 4; ++rank)
      EXPECT_EQ(plan.shards.elements_of(rank), 2 * rows) << level;
  }
}

// The gradients of weights come in the second half, and the parameters are there in each half.
TEST(MeshPlan, FetchesForBothHalvesOfABackward) {
  DataParallelFacts facts = facts_of(4, "threads");
  facts.division.mesh.pipeline = 2;
  facts.division.pipeline.schedule = "zbh1";
  facts.division.pipeline.microbatches = 3;
  facts.shard_level = 3;
  const EnginePlan plan = plan_of(facts);
  for (int rank = 0; rank < 4; ++rank) EXPECT_EQ(count(plan, rank, "reduce_scatter"), 3 * 2);
  // The first stage's inputs need no gradients, so its first halves fetch nothing.
  EXPECT_LT(count(plan, 0, "all_gather"), count(plan, 1, "all_gather"));
}

TEST(MeshPlan, ChecksThatEachParameterIsOnAStage) {
  DataParallelFacts facts = facts_of(2, "threads");
  facts.shard_level = 2;
  EnginePlan plan = plan_of(facts);
  plan.stages[0].rows->rows[1][0].to -= 1;
  EXPECT_THAT(message_of(ErrorCode::internal, [&] { check(plan); }), HasSubstr("'w1'"));
  plan = plan_of(facts_of(2, "threads"));
  plan.stages[0].params.pop_back();
  plan.stages[0].buckets = plan_buckets(
      std::span(plan.parameters).first(plan.stages[0].params.size()), BucketOptions());
  EXPECT_THAT(message_of(ErrorCode::internal, [&] { check(plan); }),
              HasSubstr("'w3' is on no stage"));
}

TEST(MeshPlan, DoesNotKnowTheOperationsOfDividedLayers) {
  DataParallelFacts facts = facts_of(4, "threads");
  facts.division.mesh.tensor = 2;
  const EnginePlan plan = plan_of(facts);
  EXPECT_TRUE(plan.stages.empty());
  EXPECT_FALSE(plan.knows_all_operations);
  EXPECT_THAT(plan.describe(), HasSubstr("those of divided layers"));
}

}  // namespace
}  // namespace trireme::plan::mesh_plan_test
