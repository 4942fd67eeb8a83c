#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <trireme/plan/shard_tree.h>

#include "../base/expect_error.h"

namespace trireme::plan::shard_tree_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

TEST(ShardTree, AddsInOneOrderForEveryNumberOfRanks) {
  for (int shards = 1; shards <= 16; ++shards)
    for (int ranks = 1; ranks <= 2 * shards; ++ranks) {
      const ShardTree tree = plan_shard_tree(shards, ranks);
      EXPECT_NO_THROW(check(tree)) << shards << " shards, " << ranks << " ranks\n"
                                   << tree.describe();
      EXPECT_EQ(tree.ranks.size(), static_cast<size_t>(ranks));
    }
}

TEST(ShardTree, LeavesNothingToCombineForOneRank) {
  for (int shards = 1; shards <= 16; ++shards) {
    const ShardTree tree = plan_shard_tree(shards, 1);
    EXPECT_THAT(tree.combine, IsEmpty());
    EXPECT_THAT(tree.ranks[0].travels, ElementsAre(ShardRange{0, shards}));
    EXPECT_EQ(tree.ranks[0].sums.size(), static_cast<size_t>(shards - 1));
  }
}

TEST(ShardTree, LetsWholeSubtreesTravel) {
  const ShardTree halves = plan_shard_tree(8, 2);
  EXPECT_THAT(halves.ranks[0].travels, ElementsAre(ShardRange{0, 4}));
  EXPECT_THAT(halves.ranks[1].travels, ElementsAre(ShardRange{4, 8}));
  EXPECT_THAT(halves.combine, ElementsAre(ShardSum{0, 4, 8}));

  const ShardTree thirds = plan_shard_tree(8, 3);
  EXPECT_THAT(thirds.ranks[0].travels, ElementsAre(ShardRange{0, 2}, ShardRange{2, 3}));
  EXPECT_THAT(thirds.ranks[1].travels, ElementsAre(ShardRange{3, 4}, ShardRange{4, 6}));
  EXPECT_THAT(thirds.ranks[2].travels, ElementsAre(ShardRange{6, 8}));
  EXPECT_THAT(thirds.combine, ElementsAre(ShardSum{2, 3, 4}, ShardSum{0, 2, 4}, ShardSum{4, 6, 8},
                                          ShardSum{0, 4, 8}));
}

TEST(ShardTree, HoldsFewNodesAtATime) {
  // The number of nodes is the number of ones in the binary form of shard + 1; 15 has four.
  const ShardTree tree = plan_shard_tree(16, 1);
  size_t done = 0;
  for (int shard = 0; shard < 16; ++shard) {
    while (done < tree.ranks[0].sums.size() && tree.ranks[0].sums[done].last == shard + 1) ++done;
    EXPECT_LE(static_cast<size_t>(shard + 1) - done, 4u);
  }
}

TEST(ShardTree, LeavesRanksBeyondTheShardsWithoutAny) {
  const ShardTree tree = plan_shard_tree(2, 3);
  EXPECT_THAT(tree.ranks[2].travels, IsEmpty());
  EXPECT_EQ(tree.ranks[2].own, (ShardRange{2, 2}));
}

TEST(ShardTree, DescribesTheNodesThatEachRankSends) {
  EXPECT_EQ(plan_shard_tree(5, 3).describe(),
            "5 virtual shards, added up by a tree of fixed order\n"
            "  rank 0: 0-1; as 0-1\n"
            "  rank 1: 2-3; as 2-3\n"
            "  rank 2: 4; as 4\n");
  EXPECT_EQ(
      plan_shard_tree(3, 2).to_json().dump(),
      R"({"shards":3,"ranks":[{"own":[0,2],"travels":[[0,2]]},{"own":[2,3],"travels":[[2,3]]}]})");
}

TEST(ShardTree, RefusesNumbersBelowOne) {
  EXPECT_THAT(message_of(ErrorCode::invalid_argument, [] { plan_shard_tree(0, 2); }),
              HasSubstr("0 virtual shards for 2 ranks"));
  EXPECT_THAT(message_of(ErrorCode::invalid_argument, [] { plan_shard_tree(8, 0); }),
              HasSubstr("8 virtual shards for 0 ranks"));
}

TEST(ShardTree, CheckerFindsEachMistake) {
  const auto damaged = [](auto damage) {
    ShardTree tree = plan_shard_tree(8, 3);
    damage(tree);
    return [tree] { check(tree); };
  };
  EXPECT_THAT(
      message_of(ErrorCode::internal, damaged([](ShardTree& tree) { tree.combine.pop_back(); })),
      HasSubstr("another order"));
  EXPECT_THAT(message_of(ErrorCode::internal, damaged([](ShardTree& tree) {
                           std::swap(tree.combine[0], tree.combine[1]);
                         })),
              HasSubstr("not neighbours"));
  EXPECT_THAT(message_of(ErrorCode::internal,
                         damaged([](ShardTree& tree) { tree.ranks[1].own.last = 5; })),
              HasSubstr("out of order"));
  EXPECT_THAT(message_of(ErrorCode::internal,
                         damaged([](ShardTree& tree) { tree.ranks[1].own.first = 2; })),
              HasSubstr("or two"));
  EXPECT_THAT(message_of(ErrorCode::internal,
                         damaged([](ShardTree& tree) { tree.ranks[0].travels.pop_back(); })),
              HasSubstr("1 nodes travel, but 2 are left"));
  EXPECT_THAT(message_of(ErrorCode::internal, damaged([](ShardTree& tree) {
                           tree.combine.insert(tree.combine.begin(), {0, 7, 8});
                         })),
              HasSubstr("does not exist"));
  // This sum contains all shards, but adds them from left to right.
  EXPECT_THAT(message_of(ErrorCode::internal,
                         [] {
                           ShardTree chain = plan_shard_tree(4, 4);
                           chain.combine = {{0, 1, 2}, {0, 2, 3}, {0, 3, 4}};
                           check(chain);
                         }),
              HasSubstr("another order"));
}

}  // namespace
}  // namespace trireme::plan::shard_tree_test
