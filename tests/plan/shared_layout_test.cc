#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <trireme/plan/shared_layout.h>
#include <algorithm>

#include "shard_cases.h"

namespace trireme::plan::shared_layout_test {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

struct Region {
  size_t begin = 0, end = 0;
};

std::vector<Region> sorted(std::vector<Region> regions) {
  std::sort(regions.begin(), regions.end(),
            [](const Region& a, const Region& b) { return a.begin < b.begin; });
  return regions;
}

size_t bytes_in(const TensorSpec& spec) { return static_cast<size_t>(spec.bytes()); }

// The places of all parameters and states in the model's memory. Empty tensors need none.
std::vector<Region> model_regions(const ShardCase& each) {
  std::vector<Region> regions;
  for (size_t p = 0; p < each.params.size(); ++p) {
    const size_t bytes = bytes_in(each.params[p]);
    if (bytes == 0) continue;
    regions.push_back({each.layout.parameters[p], each.layout.parameters[p] + bytes});
    for (const size_t state : each.layout.states[p]) regions.push_back({state, state + bytes});
  }
  return sorted(std::move(regions));
}

std::vector<Region> gradient_regions(const ShardCase& each) {
  std::vector<Region> regions;
  for (size_t p = 0; p < each.params.size(); ++p)
    if (each.params[p].trainable)
      regions.push_back(
          {each.layout.gradients[p], each.layout.gradients[p] + bytes_in(each.params[p])});
  return sorted(std::move(regions));
}

int64_t bytes_of_shard(const ShardCase& each, const std::vector<Slice>& slices) {
  int64_t bytes = 0;
  for (const auto& [parameter, from, to] : slices)
    bytes += (to - from) * bytes_of(each.params[static_cast<size_t>(parameter)].dtype);
  return bytes;
}

// Calls visit(slices of each rank of the team, in their order) for each team.
template <typename Visit>
void for_each_team(const ShardCase& each, Visit visit) {
  const ShardPlan plan = plan_shards(each.params, each.layout, each.hosts);
  for (const std::vector<int>& team : plan.teams) {
    std::vector<std::vector<Slice>> shards;
    for (const int rank : team) shards.push_back(plan.ranks[static_cast<size_t>(rank)]);
    visit(shards);
  }
}

TEST(SharedLayout, PutsStateBehindParametersAndGradientsBehindAFreeCacheLine) {
  const std::vector<TensorSpec> params = {
      {"a", {17}}, {"frozen", {1}, DType::float64, false}, {"b", {4, 4}}};
  const std::vector<int> states = {1, 2, 0};
  const SharedLayout layout = lay_out(params, states);
  EXPECT_THAT(layout.parameters, ElementsAre(0, 128, 192));
  EXPECT_THAT(layout.states, ElementsAre(ElementsAre(256), ElementsAre(384, 448), IsEmpty()));
  EXPECT_EQ(layout.model_bytes, 512U);
  EXPECT_EQ(layout.gradients[0], 64U);
  EXPECT_EQ(layout.gradients[2], 256U);
  EXPECT_EQ(layout.gradient_bytes, 320U);
}

TEST(SharedLayout, NeedsNoMemoryForNothing) {
  const SharedLayout layout = lay_out({}, {});
  EXPECT_EQ(layout.model_bytes, 0U);
  EXPECT_EQ(layout.gradient_bytes, 0U);
}

TEST(SharedLayout, GivesEachParameterItsStateTensors) {
  for_each_shard_case([](const ShardCase& each) {
    ASSERT_EQ(each.layout.parameters.size(), each.params.size());
    ASSERT_EQ(each.layout.gradients.size(), each.params.size());
    ASSERT_EQ(each.layout.states.size(), each.params.size());
    for (size_t p = 0; p < each.params.size(); ++p)
      ASSERT_EQ(each.layout.states[p].size(), p % 4) << each.describe();
  });
}

TEST(SharedLayout, BeginsEverythingAtACacheLine) {
  for_each_shard_case([](const ShardCase& each) {
    ASSERT_EQ(each.layout.model_bytes % kCacheLine, 0U);
    ASSERT_EQ(each.layout.gradient_bytes % kCacheLine, 0U);
    for (size_t p = 0; p < each.params.size(); ++p) {
      ASSERT_EQ(each.layout.parameters[p] % kCacheLine, 0U) << each.describe();
      ASSERT_EQ(each.layout.gradients[p] % kCacheLine, 0U) << each.describe();
      for (const size_t state : each.layout.states[p])
        ASSERT_EQ(state % kCacheLine, 0U) << each.describe();
    }
  });
}

TEST(SharedLayout, OverlapsNothingAndStaysInsideItsMemory) {
  for_each_shard_case([](const ShardCase& each) {
    size_t end = 0;
    for (const Region& region : model_regions(each)) {
      ASSERT_GE(region.begin, end) << each.describe();
      end = region.end;
    }
    ASSERT_LE(end, each.layout.model_bytes) << each.describe();
  });
}

TEST(SharedLayout, LeavesACacheLineFreeBeforeEachGradient) {
  for_each_shard_case([](const ShardCase& each) {
    size_t end = 0;
    for (const Region& region : gradient_regions(each)) {
      ASSERT_GE(region.begin, end + kCacheLine) << each.describe();
      end = region.end;
    }
    ASSERT_LE(end, each.layout.gradient_bytes) << each.describe();
  });
}

TEST(SharedLayout, MakesATeamOfTheRanksOfEachHost) {
  const std::vector<int> hosts = {0, 1, 0, 1, 0};
  EXPECT_THAT(plan_shards({}, {}, hosts).teams,
              ElementsAre(ElementsAre(0, 2, 4), ElementsAre(1, 3)));
  EXPECT_THAT(plan_shards({}, {}, {}).teams, IsEmpty());
}

TEST(SharedLayout, GivesARankThatIsAloneEverything) {
  const std::vector<TensorSpec> params = {{"a", {17}}, {"b", {5}, DType::float64}};
  const std::vector<int> states = {1, 1}, hosts = {0, 0, 1};
  const ShardPlan plan = plan_shards(params, lay_out(params, states), hosts);
  EXPECT_THAT(plan.ranks[2], ElementsAre(Slice{0, 0, 17}, Slice{1, 0, 5}));
}

TEST(SharedLayout, CutsShardsAtCacheLines) {
  for_each_shard_case([](const ShardCase& each) {
    for_each_team(each, [&](const std::vector<std::vector<Slice>>& shards) {
      for (const std::vector<Slice>& slices : shards)
        for (const auto& [parameter, from, to] : slices) {
          const TensorSpec& spec = each.params[static_cast<size_t>(parameter)];
          const int64_t line = static_cast<int64_t>(kCacheLine) / bytes_of(spec.dtype);
          ASSERT_EQ(from % line, 0) << each.describe();
          ASSERT_TRUE(to == spec.elements() || to % line == 0) << each.describe();
        }
    });
  });
}

TEST(SharedLayout, GivesTheRanksOfATeamNeighbouringElementsInTheirOrder) {
  for_each_shard_case([](const ShardCase& each) {
    for_each_team(each, [&](const std::vector<std::vector<Slice>>& shards) {
      Slice last{-1, 0, 0};
      for (const std::vector<Slice>& slices : shards)
        for (const Slice& slice : slices) {
          const bool follows = slice.parameter == last.parameter
                                   ? slice.from == last.to
                                   : slice.from == 0 && slice.parameter > last.parameter;
          ASSERT_TRUE(follows) << each.describe();
          last = slice;
        }
    });
  });
}

TEST(SharedLayout, GivesNoRankMuchMoreThanItsPart) {
  for_each_shard_case([](const ShardCase& each) {
    for_each_team(each, [&](const std::vector<std::vector<Slice>>& shards) {
      const size_t part = each.layout.gradient_bytes / shards.size();
      for (const std::vector<Slice>& slices : shards)
        ASSERT_LE(bytes_of_shard(each, slices), static_cast<int64_t>(part + kCacheLine))
            << each.describe();
    });
  });
}

// The bytes by which the largest shard of a team exceeds its smallest one.
int64_t largest_difference(const ShardCase& each) {
  int64_t difference = 0;
  for_each_team(each, [&](const std::vector<std::vector<Slice>>& shards) {
    std::vector<int64_t> bytes;
    for (const std::vector<Slice>& slices : shards) bytes.push_back(bytes_of_shard(each, slices));
    const auto [least, most] = std::minmax_element(bytes.begin(), bytes.end());
    difference = std::max(difference, *most - *least);
  });
  return difference;
}

// A cache line for each rank, and for each parameter the free line before its gradient and the
// rest of its last one.
int64_t a_line_for_each_rank(const ShardCase& each) {
  return static_cast<int64_t>(kCacheLine * (each.hosts.size() + 2 * each.params.size()));
}

TEST(SharedLayout, MakesShardsThatDifferByALineForEachRankAtMost) {
  for_each_shard_case([](const ShardCase& each) {
    EXPECT_LE(largest_difference(each), a_line_for_each_rank(each)) << each.describe();
  });
}

}  // namespace
}  // namespace trireme::plan::shared_layout_test
