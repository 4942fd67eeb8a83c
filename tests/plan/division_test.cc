#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <trireme/plan/division.h>
#include <trireme/plan/mesh_plan.h>

#include "../base/expect_error.h"

namespace trireme::plan::division_test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

TEST(Division, TheMeshHasAllRanksAndThoseOfAReplicaAreNeighbours) {
  for (int pipeline = 1; pipeline <= 4; ++pipeline)
    for (int tensor = 1; tensor <= 3; ++tensor)
      for (int data = 1; data <= 3; ++data)
        for (const int given : {0, data}) {
          const MeshOptions options{given, pipeline, tensor};
          const int ranks = data * pipeline * tensor;
          const Mesh mesh = mesh_of(options, ranks);
          check(mesh);
          EXPECT_EQ(mesh.world_size(), ranks);
          EXPECT_EQ(replicas_of(options, ranks), data);
          for (int rank = 0; rank < ranks; ++rank)
            EXPECT_EQ(mesh.coordinates_of(rank)[0], rank / options.ranks_of_a_replica());
        }
}

TEST(Division, RanksThatDoNotFillTheMeshAreRefused) {
  EXPECT_THAT(message_of(ErrorCode::invalid_argument, [] { mesh_of({0, 2, 1}, 3); }),
              AllOf(HasSubstr("mesh.pipeline 2"), HasSubstr("there are 3")));
  EXPECT_THAT(message_of(ErrorCode::invalid_argument, [] { mesh_of({0, 2, 2}, 1); }),
              AllOf(HasSubstr("there is 1"), HasSubstr("4 workers")));
  EXPECT_THAT(message_of(ErrorCode::invalid_argument, [] { mesh_of({3, 2, 1}, 4); }),
              AllOf(HasSubstr("mesh.data 3"), HasSubstr("6 ranks"), HasSubstr("there are 4")));
}

TEST(Division, MicrobatchesAreFourForEachStageUnlessTheyAreGiven) {
  DivisionOptions division;
  EXPECT_EQ(pipeline_of(division).facts.microbatches, 1);
  division.mesh.pipeline = 3;
  EXPECT_EQ(pipeline_of(division).facts.microbatches, 12);
  division.pipeline.microbatches = 5;
  EXPECT_EQ(pipeline_of(division).facts.microbatches, 5);
}

TEST(Division, AScheduleThatDoesNotFitIsRefusedWithItsKey) {
  DivisionOptions division;
  division.mesh.pipeline = 2;
  division.pipeline.schedule = "1f2b";
  EXPECT_THAT(message_of(ErrorCode::invalid_argument, [&] { pipeline_of(division); }),
              AllOf(HasSubstr("pipeline.schedule is 1f2b"), HasSubstr("1f1b")));
  division.pipeline.schedule = "0F0 0B0; 1F0 1B0";
  EXPECT_EQ(pipeline_of(division).facts.stages, 2);
  division.mesh.pipeline = 3;
  EXPECT_THAT(message_of(ErrorCode::invalid_argument, [&] { pipeline_of(division); }),
              AllOf(HasSubstr("mesh.pipeline is 3"), HasSubstr("2")));
}

TEST(Division, ACutThatDoesNotFitIsRefusedWithItsKey) {
  const std::vector<BlockCost> two = {{.name = "a", .parameters = 1},
                                      {.name = "b", .parameters = 1}};
  EXPECT_THAT(message_of(ErrorCode::invalid_argument,
                         [&] { cut_of("parameters", plan_pipeline({.stages = 3}), two); }),
              AllOf(HasSubstr("pipeline.cut is parameters"), HasSubstr("3"), HasSubstr("2")));
}

TEST(Division, TheShardsOfAStrategyAreTwoUnlessTheyAreGiven) {
  EXPECT_EQ(shard_level_of("sharded", {}), 2);
  EXPECT_EQ(shard_level_of("pipeline", {}), 0);
  EXPECT_EQ(shard_level_of("sharded", {.level = 3}), 3);
}

}  // namespace
}  // namespace trireme::plan::division_test
