#include <trireme/plan/keyed_order.h>

#include <gmock/gmock.h>
#include <trireme/plan/data_plan.h>
#include <algorithm>
#include <set>
#include <vector>

#include "../base/expect_error.h"

namespace trireme::plan::keyed_order_test {
namespace {

using ::testing::HasSubstr;

std::vector<int64_t> all_of(int64_t n, uint64_t seed) {
  const KeyedOrder order(n, seed);
  std::vector<int64_t> all;
  for (int64_t place = 0; place < n; ++place) all.push_back(order.at(place));
  return all;
}

TEST(KeyedOrder, IsAPermutationForEverySmallSize) {
  for (int64_t n = 1; n <= 300; ++n)
    for (const uint64_t seed : {0, 1, 77}) {
      const std::vector<int64_t> order = all_of(n, seed);
      const std::set<int64_t> seen(order.begin(), order.end());
      ASSERT_EQ(std::ssize(seen), n);
      ASSERT_EQ(*seen.begin(), 0);
      ASSERT_EQ(*seen.rbegin(), n - 1);
    }
}

TEST(KeyedOrder, IsAPermutationAroundAPowerOfFour) {
  for (const int64_t n : {65535, 65536, 65537}) {
    std::vector<bool> seen(static_cast<size_t>(n));
    for (const int64_t sample : all_of(n, 5)) {
      ASSERT_FALSE(seen[static_cast<size_t>(sample)]);
      seen[static_cast<size_t>(sample)] = true;
    }
  }
}

TEST(KeyedOrder, DependsOnTheSeedAndIsTheSameEverywhere) {
  EXPECT_EQ(all_of(1000, 3), all_of(1000, 3));
  EXPECT_NE(all_of(1000, 3), all_of(1000, 4));
}

// A sample lands in each tenth of the order about as often as in any other, and neighbours part.
TEST(KeyedOrder, Mixes) {
  constexpr int64_t kSamples = 1000, kSeeds = 2000;
  std::vector<int> tenths(10);
  int64_t neighbours = 0;
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    const KeyedOrder order(kSamples, seed);
    ++tenths[static_cast<size_t>(order.at(123) * 10 / kSamples)];
    neighbours += std::abs(order.at(500) - order.at(501)) == 1;
  }
  for (const int count : tenths) EXPECT_NEAR(count, kSeeds / 10, 70);  // Five standard deviations.
  EXPECT_LT(neighbours, 20);
}

TEST(KeyedOrder, FillsAsItGivesOneByOne) {
  for (const int64_t n : {1, 5, 255, 257, 1000, 16385}) {
    const KeyedOrder order(n, 11);
    std::vector<int64_t> all(static_cast<size_t>(n));
    order.fill(0, all);
    for (int64_t place = 0; place < n; ++place)
      ASSERT_EQ(all[static_cast<size_t>(place)], order.at(place));
    std::vector<int64_t> part(static_cast<size_t>(n / 2));
    order.fill(n - n / 2, part);
    EXPECT_TRUE(std::equal(part.begin(), part.end(), all.end() - n / 2));
  }
  std::vector<int64_t> two(2);
  EXPECT_THAT(message_of(ErrorCode::invalid_argument, [&] { KeyedOrder(5, 1).fill(4, two); }),
              HasSubstr("places 4 to 6"));
}

TEST(KeyedOrder, RefusesPlacesOutside) {
  EXPECT_THAT(message_of(ErrorCode::invalid_argument, [] { KeyedOrder(0, 1); }), HasSubstr("0"));
  EXPECT_THAT(message_of(ErrorCode::invalid_argument, [] { KeyedOrder(5, 1).at(5); }),
              HasSubstr("place 5"));
}

// 2^60 samples have no table.
TEST(LargeDataPlan, NeedsNoMemory) {
  const int64_t samples = int64_t{1} << 60;
  const DataPlan plan({.samples = samples, .batch = 64, .seed = 9});
  std::set<int64_t> seen;
  DataPosition at{3, samples / 2};
  for (int step = 0; step < 100; ++step, at = plan.next(at))
    for (const int64_t sample : plan.global_batch(at)) {
      EXPECT_TRUE(sample >= 0 && sample < samples);
      EXPECT_TRUE(seen.insert(sample).second);
    }
  EXPECT_NE(plan.global_batch({3, 0}), plan.global_batch({4, 0}));
  EXPECT_EQ(plan.next({3, samples - 64}), (DataPosition{4, 0}));
  EXPECT_NO_THROW(check(plan, 7));
}

TEST(LargeDataPlan, WithoutShufflingCounts) {
  const DataPlan plan({.samples = int64_t{1} << 40, .batch = 3, .shuffle = false});
  EXPECT_EQ(plan.global_batch({1, 1000}), (std::vector<int64_t>{1000, 1001, 1002}));
}

}  // namespace
}  // namespace trireme::plan::keyed_order_test
