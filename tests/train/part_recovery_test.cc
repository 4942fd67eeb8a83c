// Elastic jobs whose ranks have parts of a model: a lost part comes from a rank that has it too,
// or else all go back to the newest checkpoint. The losses are those of one device.
#include "lost_parts.h"
// This header must come after those of torch.
#include <gmock/gmock.h>

#include "../base/expect_error.h"

namespace trireme::part_recovery_test {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using tests::clouds;
using tests::Folder;
using tests::PartedJob;
using tests::PartedResult;
using tests::train_parted;

TrainerOptions stages(int count = 2) {
  TrainerOptions options = tests::options();
  options.strategy = "pipeline";
  options.division.mesh.pipeline = count;
  options.division.pipeline.microbatches = 2;
  return options;
}

TrainerOptions shards(int level) {
  TrainerOptions options = tests::options();
  options.strategy = "sharded";
  options.division.shard.level = level;
  options.share_parameters = false;
  return options;
}

void keep_checkpoints(TrainerOptions& options, const Folder& folder) {
  options.checkpoint.dir = folder.path();
  options.checkpoint.every_steps = 2;
}

Report on_one_device(bool tied = false) {
  return tests::fit(tests::options(), tests::parted_job({}, tied), clouds(90));
}

void expect_undisturbed(const PartedResult& result, size_t survivors, const std::string& what,
                        bool tied = false) {
  static const Report untied_reference = on_one_device(), tied_reference = on_one_device(true);
  const Report& reference = tied ? tied_reference : untied_reference;
  EXPECT_THAT(result.errors, IsEmpty()) << what;
  ASSERT_THAT(result.reports, SizeIs(survivors)) << what;
  for (const Report& report : result.reports) {
    EXPECT_LT(tests::difference(report.loss_history, reference.loss_history), 1e-10) << what;
    EXPECT_EQ(report.steps, reference.steps) << what;
    EXPECT_TRUE(report.samples.exactly_once()) << what;
    EXPECT_EQ(report.parameters_sha256, result.reports[0].parameters_sha256) << what;
  }
}

// A rank of 2 stages runs 4 blocks in a step of 2 micro-batches.
TEST(PartRecovery, ALostStageComesFromItsPeer) {
  for (int rank = 0; rank < 4; ++rank)
    for (const int calls : {1, 17, 30}) {
      const PartedJob job{.minimum = 2, .workers = 4, .unit = 2, .ends = {{rank, calls}}};
      const PartedResult result = train_parted(stages(), job);
      const std::string what = fmt::format("rank {} at call {}", rank, calls);
      expect_undisturbed(result, 2, what);
      EXPECT_EQ(result.ended, 1) << what;
      // Alone in its unit, the other stage of the lost one waits as a spare.
      EXPECT_EQ(result.dismissed, 1) << what;
      for (const Report& report : result.reports) EXPECT_EQ(report.resumed_from_step, 0) << what;
    }
}

TEST(PartRecovery, AReplacementGetsTheLostStageFromItsPeer) {
  for (int rank = 0; rank < 4; ++rank) {
    const PartedJob job{
        .minimum = 4, .workers = 4, .unit = 2, .replacements = 1, .ends = {{rank, 22}}};
    const PartedResult result = train_parted(stages(), job);
    expect_undisturbed(result, 4, fmt::format("rank {}", rank));
    for (const Report& report : result.reports) {
      EXPECT_EQ(report.world_size, 4);
      EXPECT_EQ(report.resumed_from_step, 0);
    }
  }
}

TEST(PartRecovery, SurvivesOneLossAfterAnother) {
  const PartedJob job{
      .minimum = 4, .workers = 4, .unit = 2, .replacements = 2, .ends = {{1, 14}, {0, 30}}};
  const PartedResult result = train_parted(stages(), job);
  expect_undisturbed(result, 4, "two losses");
  EXPECT_EQ(result.ended, 2);
}

TEST(PartRecovery, TiedWeightsStayTied) {
  for (int rank = 0; rank < 4; ++rank) {
    const PartedJob job{.minimum = 2, .workers = 4, .unit = 2, .tied = true, .ends = {{rank, 21}}};
    expect_undisturbed(train_parted(stages(), job), 2, fmt::format("rank {}", rank), true);
  }
}

// Ranks 1 and 3 have the second stage, and of the ranks that are left the second one gets it.
TEST(PartRecovery, WithoutAPeerAllGoBackToTheNewestCheckpoint) {
  const Folder folder;
  TrainerOptions options = stages();
  keep_checkpoints(options, folder);
  const PartedJob job{.minimum = 2, .workers = 4, .unit = 2, .ends = {{1, 30}, {3, 30}}};
  const PartedResult result = train_parted(options, job);
  expect_undisturbed(result, 2, "both second stages");
  EXPECT_EQ(result.ended, 2);
  for (const Report& report : result.reports) EXPECT_GT(report.resumed_from_step, 0);
}

TEST(PartRecovery, WithoutAPeerAndACheckpointTheRunEndsAndSaysWhy) {
  const PartedJob job{.minimum = 2, .workers = 4, .unit = 2, .ends = {{0, 30}, {2, 30}}};
  const PartedResult result = train_parted(stages(), job);
  EXPECT_THAT(result.reports, IsEmpty());
  EXPECT_THAT(result.errors, AllOf(SizeIs(2), Each(HasSubstr("checkpoint.every"))));
}

TEST(PartRecovery, ALostPartComesFromTheCopyOfANeighbour) {
  // There is no checkpoint, and no other rank has the part.
  for (int rank = 0; rank < 2; ++rank)
    for (const int calls : {1, 17, 30, 33}) {
      TrainerOptions options = stages();
      options.checkpoint.memory_every = 2;
      const PartedJob job{
          .minimum = 2, .workers = 2, .unit = 2, .replacements = 1, .ends = {{rank, calls}}};
      const PartedResult result = train_parted(options, job);
      const std::string what = fmt::format("rank {} at call {}", rank, calls);
      expect_undisturbed(result, 2, what);
      for (const Report& report : result.reports) {
        EXPECT_EQ(report.resumed_from_step % 2, 0) << what;
        EXPECT_EQ(report.resumed_from_step > 0, calls >= 17) << what;
      }
    }
}

TEST(PartRecovery, ALostShardComesFromTheCopyOfANeighbour) {
  for (const int level : {1, 2, 3})
    for (const int rank : {0, 2}) {
      TrainerOptions options = shards(level);
      options.checkpoint.memory_every = 3;
      const PartedJob job{.minimum = 2, .workers = 3, .ends = {{rank, 30}}};
      const std::string what = fmt::format("level {}, rank {}", level, rank);
      const PartedResult result = train_parted(options, job);
      expect_undisturbed(result, 2, what);
      for (const Report& report : result.reports) EXPECT_GT(report.resumed_from_step, 0) << what;
    }
}

TEST(PartRecovery, CopiesServeOneLossAfterAnother) {
  TrainerOptions options = stages();
  options.checkpoint.memory_every = 2;
  const PartedJob job{
      .minimum = 2, .workers = 2, .unit = 2, .replacements = 2, .ends = {{1, 18}, {0, 40}}};
  const PartedResult result = train_parted(options, job);
  expect_undisturbed(result, 2, "two losses");
  EXPECT_EQ(result.ended, 2);
}

// The copy of rank 1 is on rank 2.
TEST(PartRecovery, WithoutTheNeighbourAllGoBackToTheNewestCheckpoint) {
  const Folder folder;
  TrainerOptions options = shards(3);
  keep_checkpoints(options, folder);
  options.checkpoint.memory_every = 1;
  const PartedJob job{.minimum = 1, .workers = 3, .ends = {{1, 30}, {2, 30}}};
  const PartedResult result = train_parted(options, job);
  expect_undisturbed(result, 1, "a shard and its copy");
  for (const Report& report : result.reports) EXPECT_GT(report.resumed_from_step, 0);
}

TEST(PartRecovery, CopiesAreRefusedWhereNoneAreNeeded) {
  TrainerOptions options = tests::options();
  options.checkpoint.memory_every = 2;
  const PartedResult result = train_parted(options, {.minimum = 1, .workers = 2});
  EXPECT_THAT(result.errors, AllOf(SizeIs(2), Each(HasSubstr("checkpoint.memory_every is 2"))));
}

// The one that is there has lent the memory of its parameters to an engine of two by then.
TEST(PartRecovery, ANewcomerThatEndsAtOnceChangesNothing) {
  for (const int level : {1, 2, 3}) {
    const PartedJob job{.minimum = 1, .workers = 1, .newcomers = 1, .newcomers_end_at_once = true};
    const PartedResult result = train_parted(shards(level), job);
    expect_undisturbed(result, 1, fmt::format("level {}", level));
    EXPECT_EQ(result.ended, 1) << level;
  }
}

TEST(PartRecovery, ALostShardSendsAllBackToTheNewestCheckpoint) {
  for (const int level : {1, 2, 3}) {
    const Folder folder;
    TrainerOptions options = shards(level);
    keep_checkpoints(options, folder);
    const PartedJob job{.minimum = 1, .workers = 2, .ends = {{1, 30}}};
    const PartedResult result = train_parted(options, job);
    expect_undisturbed(result, 1, fmt::format("level {}", level));
    for (const Report& report : result.reports) EXPECT_GT(report.resumed_from_step, 0);
  }
}

// Nothing is lost, and there is no checkpoint.
TEST(PartRecovery, NewcomersGetTheirPartsFromMemory) {
  for (const int level : {1, 2, 3}) {
    TrainerOptions options = shards(level);
    options.batch = 4;
    const PartedResult result =
        train_parted(options, {.minimum = 2, .workers = 2, .newcomers = 1});
    TrainerOptions alone = tests::options();
    alone.batch = options.batch;
    const Report reference = tests::fit(alone, tests::parted_job(), clouds(90));
    EXPECT_THAT(result.errors, IsEmpty());
    ASSERT_THAT(result.reports, SizeIs(3)) << level;
    for (const Report& report : result.reports) {
      EXPECT_EQ(report.world_size, 3) << level;
      EXPECT_GE(report.generations.size(), 2U) << level;
      EXPECT_LT(tests::difference(report.loss_history, reference.loss_history), 1e-10) << level;
      EXPECT_TRUE(report.samples.exactly_once()) << level;
    }
  }
}

TEST(PartRecovery, AnotherUnitGetsItsStagesFromTheFirst) {
  const PartedJob job{.minimum = 2, .workers = 2, .unit = 2, .newcomers = 2};
  const PartedResult result = train_parted(stages(), job);
  expect_undisturbed(result, 4, "two units");
  for (const Report& report : result.reports) EXPECT_EQ(report.world_size, 4);
}

TEST(PartRecovery, UnitsThatDoNotFitTheMeshAreRefused) {
  const PartedResult result = train_parted(stages(), {.minimum = 2, .workers = 2, .unit = 1});
  EXPECT_THAT(result.errors, AllOf(SizeIs(2), Each(HasSubstr("--unit 2"))));
  TrainerOptions two_replicas = stages();
  two_replicas.division.mesh.data = 2;
  const PartedResult sizes = train_parted(two_replicas, {.minimum = 2, .workers = 4, .unit = 2});
  EXPECT_THAT(
      sizes.errors,
      AllOf(SizeIs(4), Each(AllOf(HasSubstr("mesh.data is 2"), HasSubstr("--elastic 4:4")))));
}

}  // namespace
}  // namespace trireme::part_recovery_test
