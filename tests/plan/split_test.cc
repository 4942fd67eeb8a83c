#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <trireme/plan/sample_order.h>
#include <trireme/plan/split.h>
#include <algorithm>
#include <cmath>
#include <limits>

#include "../base/expect_error.h"

namespace trireme::plan::split_test {
namespace {

using testing::HasSubstr;
using Numbers = std::vector<int64_t>;

// Both parts ascend, and have each sample once.
void expect_whole(const Split& split, int64_t samples) {
  const Numbers train = split.train.numbers(), test = split.test.numbers();
  EXPECT_TRUE(std::is_sorted(train.begin(), train.end()));
  EXPECT_TRUE(std::is_sorted(test.begin(), test.end()));
  Numbers all(train.size() + test.size());
  std::merge(train.begin(), train.end(), test.begin(), test.end(), all.begin());
  ASSERT_EQ(std::ssize(all), samples);
  for (int64_t i = 0; i < samples; ++i) ASSERT_EQ(all[static_cast<size_t>(i)], i);
}

TEST(Split, HoldsOutTheRoundedFraction) {
  for (const int64_t samples : {0, 1, 2, 3, 97, 1797}) {
    for (const double fraction : {0.0, 0.2, 0.5, 1.0}) {
      const Split split = plan_split(samples, fraction, 11);
      EXPECT_EQ(split.test.size(), std::llround(static_cast<double>(samples) * fraction));
      expect_whole(split, samples);
    }
  }
}

TEST(Split, DependsOnTheSeedAlone) {
  EXPECT_EQ(plan_split(1797, 0.2, 3).test.numbers(), plan_split(1797, 0.2, 3).test.numbers());
  EXPECT_NE(plan_split(1797, 0.2, 3).test.numbers(), plan_split(1797, 0.2, 4).test.numbers());
}

TEST(Split, RefusesAFractionOutsideZeroToOne) {
  for (const double fraction : {-0.1, 1.1, std::numeric_limits<double>::quiet_NaN()}) {
    EXPECT_THAT(message_of(ErrorCode::invalid_argument, [&] { plan_split(10, fraction, 0); }),
                HasSubstr("test_fraction is"));
  }
}

TEST(Split, HoldsOutTheEndOfSamplesThatFollowEachOther) {
  const Split split = split_at_end(10, 0.25);  // 2.5 are rounded.
  EXPECT_EQ(split.train.numbers(), (Numbers{0, 1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(split.test.numbers(), (Numbers{7, 8, 9}));
  EXPECT_TRUE(split_at_end(10, 0).test.empty());
}

TEST(Split, OfManySamplesNeedsNoTable) {
  constexpr int64_t kBillion = 1'000'000'000;
  for (const double fraction : {0.1, 0.5, 0.8, 1e-8}) {
    const Split split = plan_split(kBillion, fraction, 7);
    EXPECT_EQ(split.test.size(), std::llround(fraction * kBillion));
    EXPECT_EQ(split.train.size() + split.test.size(), kBillion);
    // A number of the training part has as many of both parts below it as it says itself.
    for (int64_t i = 0; i < split.train.size(); i += 7'654'321) {
      const int64_t number = split.train[i];
      EXPECT_EQ(split.test.count_below(number) + i, number);
      EXPECT_EQ(split.train.count_below(number), i);
    }
    const int64_t last =
        std::max(split.train[split.train.size() - 1], split.test[split.test.size() - 1]);
    EXPECT_EQ(last, kBillion - 1);
  }
  EXPECT_NE(plan_split(kBillion, 0.1, 7).test[5], plan_split(kBillion, 0.1, 8).test[5]);
}

TEST(Strata, ChooseEachNumberOnceAndLeaveTheRest) {
  for (const int64_t total : {2, 3, 10, 97, 1000})
    for (int64_t chosen = 1; chosen <= total / 2; chosen += 1 + total / 20)
      for (const uint64_t seed : {0, 1, 2}) {
        const Strata strata{total, chosen, seed};
        expect_whole({Subset::rest_of(strata), Subset::chosen_of(strata)}, total);
      }
}

TEST(Subset, CountsAndCuts) {
  const Strata strata{40, 9, 3};
  for (const Subset& subset : {Subset({1, 4, 5, 9}), Subset::range(3, 9),
                               Subset::chosen_of(strata), Subset::rest_of(strata)}) {
    const Numbers numbers = subset.numbers();
    ASSERT_EQ(std::ssize(numbers), subset.size());
    for (int64_t number = 0; number < 42; ++number)
      EXPECT_EQ(subset.count_below(number),
                std::ranges::count_if(numbers, [&](int64_t each) { return each < number; }));
    EXPECT_EQ(subset.first(3).numbers(), Numbers(numbers.begin(), numbers.begin() + 3));
    EXPECT_EQ(subset.first(3), Subset(Numbers(numbers.begin(), numbers.begin() + 3)));
    EXPECT_NE(subset.describe(), subset.first(3).describe());
  }
  EXPECT_TRUE(Subset().empty());
}

}  // namespace
}  // namespace trireme::plan::split_test
