#include <trireme/plan/bucketing.h>

#include <gmock/gmock.h>
#include <trireme/base/hash.h>
#include <trireme/plan/data_plan.h>
#include <algorithm>
#include <numeric>
#include <set>

#include "../base/expect_error.h"

namespace trireme::plan::bucketing_test {
namespace {

using ::testing::HasSubstr;

int64_t length_of(int64_t sample) { return static_cast<int64_t>(mix64(5, sample) % 500); }

OrderOptions by_length(OrderOptions order, int64_t batch, int64_t window) {
  order.by_length = std::make_shared<const LengthBatches>(
      LengthBatches{.length = length_of, .content = "x", .batch = batch, .window = window});
  return order;
}

TEST(Bucketing, IsAPermutationForEverySmallSize) {
  for (int64_t samples = 1; samples <= 120; ++samples)
    for (const int64_t batch : {1, 3, 8})
      for (const int64_t window : {1, 2, 5, 1000}) {
        const DataPlan plan({.samples = samples,
                             .batch = batch,
                             .seed = 2,
                             .shuffle = by_length(OrderKind::index, batch, window)});
        for (int ranks = 1; ranks <= 3; ++ranks) ASSERT_NO_THROW(check(plan, ranks));
      }
}

TEST(Bucketing, TakesTheSamplesOfTheSameWindow) {
  const SampleOrder plain(100, 4, true), bucketed(100, 4, by_length(true, 5, 4));
  for (int64_t begin = 0; begin < 100; begin += 20) {
    std::multiset<int64_t> a, b;
    for (int64_t place = begin; place < begin + 20; ++place) {
      a.insert(plain.at(1, place));
      b.insert(bucketed.at(1, place));
    }
    EXPECT_EQ(a, b);
  }
}

TEST(Bucketing, MakesBatchesOfSimilarLength) {
  const auto padding = [](const OrderOptions& order) {
    const DataPlan plan({.samples = 2000, .batch = 20, .seed = 4, .shuffle = order});
    int64_t wasted = 0;
    for (DataPosition at; at.epoch == 0; at = plan.next(at)) {
      int64_t longest = 0, sum = 0;
      const std::vector<int64_t> batch = plan.global_batch(at);
      for (const int64_t sample : batch) {
        longest = std::max(longest, length_of(sample));
        sum += length_of(sample);
      }
      wasted += longest * std::ssize(batch) - sum;
    }
    return wasted;
  };
  EXPECT_LT(padding(by_length(true, 20, 50)) * 20, padding(true));
}

TEST(Bucketing, DoesNotDependOnTheWayThroughTheEpoch) {
  const OrderOptions order = by_length(true, 4, 3);
  const SampleOrder forward(50, 4, order), other(50, 4, order);
  for (int64_t place = 49; place >= 0; --place) {
    other.at(1, (place * 7) % 50);
    EXPECT_EQ(forward.at(0, place), other.at(0, place));
  }
}

// The batches come in no order of length, and the short one has any length.
TEST(Bucketing, DrawsTheOrderOfTheBatches) {
  int ascending = 0;
  std::set<int64_t> of_short;
  for (int64_t epoch = 0; epoch < 40; ++epoch) {
    const SampleOrder order(52, 4, by_length(true, 5, 11));
    std::vector<int64_t> samples(52);
    order.fill(epoch, 0, samples);
    ascending += length_of(samples[0]) < length_of(samples[49]);
    of_short.insert(length_of(samples[51]) / 100);
  }
  EXPECT_GT(ascending, 5);
  EXPECT_LT(ascending, 35);
  EXPECT_GE(of_short.size(), 4u);
}

TEST(Bucketing, IsARecordThatIsComparedAndNotComputed) {
  const OrderOptions order = by_length(true, 5, 11);
  const OrderOptions read = OrderOptions::from_json(order.to_json());
  EXPECT_TRUE(read == order);
  EXPECT_FALSE(read.is_known());
  EXPECT_FALSE(by_length(true, 5, 12) == order);
  EXPECT_FALSE(OrderOptions(true) == order);
  EXPECT_THAT(order.describe(1), HasSubstr("batches of 5 by length within 11 of them"));
}

TEST(Bucketing, RefusesWhatMakesNoSense) {
  EXPECT_THAT(
      message_of(ErrorCode::invalid_argument, [] { SampleOrder(10, 0, by_length(true, 0, 11)); }),
      HasSubstr("batches of 0 samples"));
}

}  // namespace
}  // namespace trireme::plan::bucketing_test
