#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <trireme/plan/shard_plan.h>
#include <algorithm>

#include "../base/expect_error.h"
#include "shard_cases.h"

namespace trireme::plan::shard_plan_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

// A cache line in front of a frozen parameter, and four behind it.
std::vector<TensorSpec> three_layers() {
  return {{"a", {16}}, {"f", {100}, DType::float32, false}, {"b", {8, 8}}};
}
// Ranks 0 and 1 share a host, and rank 2 is alone.
ShardPlan two_and_one() {
  const std::vector<TensorSpec> params = three_layers();
  const std::vector<int> states = {1, 1, 1}, hosts = {0, 0, 1};
  return plan_shards(params, lay_out(params, states), hosts);
}

TEST(ShardPlan, GivesEachTrainableElementToOneRankOfEachTeam) {
  for_each_shard_case([](const ShardCase& each) {
    const ShardPlan plan = plan_shards(each.params, each.layout, each.hosts);
    ASSERT_EQ(plan.ranks.size(), each.hosts.size()) << each.describe();
    for (const std::vector<int>& team : plan.teams) {
      std::vector<std::vector<int>> owners;
      for (const TensorSpec& spec : each.params)
        owners.emplace_back(static_cast<size_t>(spec.elements()), 0);
      for (const int rank : team)
        for (const auto& [parameter, from, to] : plan.ranks[static_cast<size_t>(rank)])
          for (int64_t i = from; i < to; ++i)
            ++owners.at(static_cast<size_t>(parameter)).at(static_cast<size_t>(i));
      for (size_t p = 0; p < each.params.size(); ++p)
        ASSERT_EQ(std::count(owners[p].begin(), owners[p].end(), each.params[p].trainable ? 1 : 0),
                  each.params[p].elements())
            << each.describe() << ": " << each.params[p].name;
    }
  });
}

TEST(ShardPlan, IsAcceptedByItsCheckerForModelsAndHostsOfAllKinds) {
  for_each_shard_case([](const ShardCase& each) {
    const ShardPlan plan = plan_shards(each.params, each.layout, each.hosts);
    ASSERT_NO_THROW(check(plan, each.params)) << each.describe();
    for (const std::vector<int>& team : plan.teams) {
      int64_t elements = 0;
      for (const int rank : team) elements += plan.elements_of(rank);
      ASSERT_EQ(elements, each.trainable_elements()) << each.describe();
    }
  });
}

TEST(ShardPlan, OfReplicasGivesEveryRankAllTrainableElements) {
  std::vector<TensorSpec> params = three_layers();
  params.push_back({"nothing", {0, 3}});
  const ShardPlan plan = replicate(params, 3);
  EXPECT_NO_THROW(check(plan, params));
  EXPECT_THAT(plan.teams, ElementsAre(ElementsAre(0), ElementsAre(1), ElementsAre(2)));
  ASSERT_EQ(plan.ranks.size(), 3U);
  for (int rank = 0; rank < 3; ++rank) {
    EXPECT_THAT(plan.ranks[static_cast<size_t>(rank)],
                ElementsAre(Slice{0, 0, 16}, Slice{2, 0, 64}));
    EXPECT_EQ(plan.elements_of(rank), 80);
  }
}

TEST(ShardPlan, OfReplicasIsAcceptedForModelsOfAllKinds) {
  for_each_shard_case([](const ShardCase& each) {
    const auto ranks = static_cast<int>(each.hosts.size());
    const ShardPlan plan = replicate(each.params, ranks);
    ASSERT_NO_THROW(check(plan, each.params)) << each.describe();
    ASSERT_EQ(plan.elements_of(ranks - 1), each.trainable_elements()) << each.describe();
  });
}

class BrokenShardPlan : public testing::Test {
 protected:
  const std::vector<TensorSpec> params = three_layers();
  // Rank 0 has a and b[0:16], rank 1 the rest of b, and rank 2 both.
  ShardPlan plan = two_and_one();

  std::string rejection() {
    return message_of(ErrorCode::internal, [&] { check(plan, params); });
  }
};

TEST_F(BrokenShardPlan, IsAcceptedBeforeItIsBroken) { EXPECT_NO_THROW(check(plan, params)); }

TEST_F(BrokenShardPlan, IsRejectedIfNobodyHasTheElementsBetweenTwoSlices) {
  plan.ranks[1][0].from = 20;
  EXPECT_THAT(rejection(),
              HasSubstr("element 16 of 'b' belongs to no rank, near the slice of rank 1"));
}

TEST_F(BrokenShardPlan, IsRejectedIfNobodyHasTheFirstElements) {
  plan.ranks[0][0].from = 5;
  EXPECT_THAT(rejection(),
              HasSubstr("element 0 of 'a' belongs to no rank, near the slice of rank 0"));
}

TEST_F(BrokenShardPlan, IsRejectedIfNobodyHasTheLastElements) {
  plan.ranks[1][0].to = 63;
  EXPECT_THAT(rejection(), HasSubstr("element 63 of 'b' belongs to no rank"));
}

TEST_F(BrokenShardPlan, IsRejectedIfNobodyHasAParameter) {
  plan.ranks[0].erase(plan.ranks[0].begin());
  EXPECT_THAT(rejection(), HasSubstr("element 0 of 'a' belongs to no rank"));
}

TEST_F(BrokenShardPlan, IsRejectedIfATeamLacksWhatAnotherTeamHas) {
  plan.ranks[2].pop_back();
  EXPECT_THAT(rejection(), HasSubstr("element 0 of 'b' belongs to no rank"));
}

TEST_F(BrokenShardPlan, IsRejectedIfSlicesOverlap) {
  plan.ranks[1][0].from = 10;
  EXPECT_THAT(rejection(),
              HasSubstr("element 10 of 'b' belongs to two ranks, near the slice of rank 1"));
}

TEST_F(BrokenShardPlan, IsRejectedIfTwoRanksHaveTheSameParameter) {
  plan.ranks[1].push_back({0, 0, 16});
  EXPECT_THAT(rejection(), HasSubstr("element 0 of 'a' belongs to two ranks"));
}

TEST_F(BrokenShardPlan, IsRejectedIfASliceLiesInsideAnother) {
  plan.ranks[1].push_back({0, 4, 8});
  EXPECT_THAT(rejection(),
              HasSubstr("element 4 of 'a' belongs to two ranks, near the slice of rank 1"));
}

TEST_F(BrokenShardPlan, IsRejectedIfARankUpdatesAFrozenParameter) {
  plan.ranks[1].push_back({1, 0, 100});
  EXPECT_THAT(rejection(), HasSubstr("rank 1 has a slice of 'f', which is not trainable"));
}

TEST_F(BrokenShardPlan, IsRejectedIfASliceLeavesItsParameter) {
  plan.ranks[1][0].to = 65;
  EXPECT_THAT(rejection(), HasSubstr("rank 1 has elements 16 to 65 of 'b', which has 64"));
  plan.ranks[0][0].from = -1;
  EXPECT_THAT(rejection(), HasSubstr("rank 0 has elements -1 to 16 of 'a', which has 16"));
}

TEST_F(BrokenShardPlan, IsRejectedIfASliceIsEmptyOrEndsBeforeItBegins) {
  plan.ranks[2].push_back({0, 5, 5});
  EXPECT_THAT(rejection(), HasSubstr("rank 2 has elements 5 to 5 of 'a'"));
  plan.ranks[2].back() = {2, 6, 5};
  EXPECT_THAT(rejection(), HasSubstr("rank 2 has elements 6 to 5 of 'b'"));
}

TEST_F(BrokenShardPlan, IsRejectedIfASliceNamesAnUnknownParameter) {
  plan.ranks[1].push_back({3, 0, 1});
  EXPECT_THAT(rejection(), HasSubstr("rank 1 names parameter 3 of 3"));
  plan.ranks[1].back().parameter = -1;
  EXPECT_THAT(rejection(), HasSubstr("rank 1 names parameter -1 of 3"));
}

TEST_F(BrokenShardPlan, IsRejectedIfARankIsInTwoTeams) {
  plan.teams[1].push_back(1);
  EXPECT_THAT(rejection(), HasSubstr("rank 1 is in 2 teams"));
}

TEST_F(BrokenShardPlan, IsRejectedIfARankIsInNoTeam) {
  plan.teams.pop_back();
  EXPECT_THAT(rejection(), HasSubstr("rank 2 is in 0 teams"));
}

TEST_F(BrokenShardPlan, IsRejectedIfATeamNamesAnUnknownRank) {
  plan.teams[0].push_back(3);
  EXPECT_THAT(rejection(), HasSubstr("a team names rank 3 of 3"));
  plan.teams[0].back() = -1;
  EXPECT_THAT(rejection(), HasSubstr("a team names rank -1 of 3"));
}

TEST(ShardPlan, DrawsThePlaceOfEachRank) {
  EXPECT_EQ(two_and_one().describe(three_layers()),
            "the ranks of a host update one copy of 80 elements\n"
            "     0  ############....................            32  a .. b[0:16]\n"
            "     1  ............####################            48  b[16:64]\n"
            "     2  ################################            80  a .. b\n");
}

TEST(ShardPlan, DrawsAnEmptyPlaceForARankWithoutElements) {
  // The first cache line of the gradient memory is free.
  const std::vector<TensorSpec> params = {{"a", {16}}};
  const std::vector<int> states = {0}, hosts = {0, 0};
  const ShardPlan plan = plan_shards(params, lay_out(params, states), hosts);
  EXPECT_THAT(plan.ranks[0], IsEmpty());
  EXPECT_EQ(plan.describe(params),
            "the ranks of a host update one copy of 16 elements\n"
            "     0  ................................             0\n"
            "     1  ################################            16  a\n");
}

TEST(ShardPlan, DrawsNothingForReplicasAndForModelsWithoutElements) {
  EXPECT_EQ(replicate(three_layers(), 3).describe(three_layers()),
            "every rank updates its own copy of 80 elements\n");
  ShardPlan together;
  together.teams = {{0, 1}};
  together.ranks.resize(2);
  EXPECT_EQ(together.describe({}), "the ranks of a host update one copy of 0 elements\n");
}

TEST(ShardPlan, DrawsPicturesOfOneWidthForModelsAndHostsOfAllKinds) {
  for_each_shard_case([](const ShardCase& each) {
    const std::string text =
        plan_shards(each.params, each.layout, each.hosts).describe(each.params);
    const auto lines = static_cast<size_t>(std::count(text.begin(), text.end(), '\n'));
    ASSERT_TRUE(lines == 1 || lines == 1 + each.hosts.size()) << each.describe() << text;
    const auto marks = std::count(text.begin(), text.end(), '#');
    const auto teams = *std::max_element(each.hosts.begin(), each.hosts.end()) + 1;
    if (lines > 1) {
      ASSERT_GE(marks, 32 * teams) << each.describe() << text;
    }
  });
}

TEST(ShardPlan, GivesItsSlicesAsJson) {
  EXPECT_EQ(two_and_one().to_json().dump(),
            R"({"teams":[[0,1],[2]],)"
            R"("ranks":[[[0,0,16],[2,0,16]],[[2,16,64]],[[0,0,16],[2,0,64]]]})");
}

}  // namespace
}  // namespace trireme::plan::shard_plan_test
