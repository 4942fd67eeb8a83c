#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <trireme/base/hash.h>
#include <trireme/plan/data_plan.h>
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "../base/expect_error.h"

namespace trireme::plan::data_plan_test {
namespace {

using testing::AllOf;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

const std::vector<int64_t> kSamples = {0, 1, 2, 3, 5, 7, 16, 17, 97, 100};
const std::vector<int64_t> kBatches = {1, 2, 3, 7, 8, 16, 101};
constexpr int kMostRanks = 16;

std::vector<int64_t> numbers_to(int64_t n) {
  std::vector<int64_t> numbers(static_cast<size_t>(n));
  std::iota(numbers.begin(), numbers.end(), int64_t{0});
  return numbers;
}

// The samples that `world_size` replicas take of the batch at `position`, replica after replica.
std::vector<int64_t> taken(const DataPlan& plan, DataPosition position, int world_size) {
  const std::vector<int64_t> batch = plan.global_batch(position);
  std::vector<int64_t> samples;
  for (int rank = 0; rank < world_size; ++rank) {
    const auto [first, last] =
        DataPlan::share(static_cast<int64_t>(batch.size()), rank, world_size);
    samples.insert(samples.end(), batch.begin() + first, batch.begin() + last);
  }
  return samples;
}

TEST(DataPlan, UsesEachSampleOnceForEveryWorldSize) {
  for (const int64_t samples : kSamples) {
    for (const int64_t batch : kBatches) {
      for (const bool shuffle : {false, true}) {
        const DataPlan plan({.samples = samples, .batch = batch, .seed = 3, .shuffle = shuffle});
        for (int ranks = 1; ranks <= kMostRanks; ++ranks)
          ASSERT_NO_THROW(check(plan, ranks)) << plan.describe(ranks);
        if (batch > samples) continue;
        const DataPlan dropping(
            {.samples = samples, .batch = batch, .shuffle = shuffle, .drop_last = true});
        for (int ranks = 1; ranks <= kMostRanks; ++ranks)
          ASSERT_NO_THROW(check(dropping, ranks)) << dropping.describe(ranks);
      }
    }
  }
}

TEST(DataPlan, GivesTheSameGlobalBatchWhateverTheWorldSize) {
  const DataPlan plan({.samples = 97, .batch = 10, .seed = 5});
  for (DataPosition at; at.epoch < 2; at = plan.next(at)) {
    for (int ranks = 1; ranks <= kMostRanks; ++ranks)
      EXPECT_EQ(taken(plan, at, ranks), plan.global_batch(at));
  }
}

TEST(DataPlan, ContinuesFromAnyPositionWithTheRemainingSamples) {
  const DataPlan plan({.samples = 23, .batch = 4, .seed = 1});
  const std::vector<int64_t> order = shuffled(23, mix64(1, 6));
  for (int64_t consumed = 0; consumed <= 23; ++consumed) {
    std::vector<int64_t> rest;
    DataPosition at{6, consumed};
    for (; at.epoch == 6; at = plan.next(at)) {
      const auto batch = plan.global_batch(at);
      rest.insert(rest.end(), batch.begin(), batch.end());
    }
    EXPECT_EQ(rest, std::vector<int64_t>(order.begin() + consumed, order.end()));
    EXPECT_EQ(at, (DataPosition{7, 0}));
  }
}

TEST(DataPlan, UsesEachSampleOnceWhenBatchAndWorldSizeChangeInsideTheEpoch) {
  for (uint64_t run = 0; run < 200; ++run) {
    std::vector<int> uses(97, 0);
    uint64_t step = 0;
    DataPosition at{static_cast<int64_t>(run), 0};
    while (at.epoch == static_cast<int64_t>(run)) {
      const uint64_t random = mix64(run, step++);
      const DataPlan plan(
          {.samples = 97, .batch = 1 + static_cast<int64_t>(random % 20), .seed = 9});
      for (const int64_t sample :
           taken(plan, at, 1 + static_cast<int>((random >> 32) % kMostRanks)))
        ++uses[static_cast<size_t>(sample)];
      at = plan.next(at);
    }
    EXPECT_THAT(uses, Each(1));
    EXPECT_NO_THROW(check_uses(uses, false));
  }
}

TEST(DataPlan, GivesAnotherOrderEachEpochAndTheSameForTheSameSeed) {
  const auto epoch_of = [](uint64_t seed, int64_t epoch) {
    return DataPlan({.samples = 50, .batch = 50, .seed = seed}).global_batch({epoch, 0});
  };
  EXPECT_EQ(epoch_of(1, 0), epoch_of(1, 0));
  EXPECT_NE(epoch_of(1, 0), epoch_of(1, 1));
  EXPECT_NE(epoch_of(1, 0), epoch_of(2, 0));
}

TEST(DataPlan, DoesNotDependOnTheOrderInWhichEpochsAreAskedFor) {
  const DataPlan plan({.samples = 20, .batch = 20, .seed = 4});
  const auto first = plan.global_batch({0, 0});
  plan.global_batch({5, 0});
  EXPECT_EQ(plan.global_batch({0, 0}), first);
}

TEST(DataPlan, KeepsTheOrderOfTheDataWithoutShuffle) {
  const DataPlan plan({.samples = 5, .batch = 2, .shuffle = false});
  EXPECT_THAT(plan.global_batch({0, 0}), ElementsAre(0, 1));
  EXPECT_THAT(plan.global_batch({3, 4}), ElementsAre(4));
}

TEST(DataPlan, EndsAnEpochWithAnEmptyBatch) {
  const DataPlan plan({.samples = 5, .batch = 2});
  EXPECT_THAT(plan.global_batch({0, 5}), IsEmpty());
  EXPECT_EQ(plan.next({0, 4}), (DataPosition{1, 0}));
  EXPECT_EQ(plan.next({0, 5}), (DataPosition{1, 0}));
  EXPECT_EQ(plan.batches_per_epoch(), 3);
}

TEST(DataPlan, LeavesOutAnIncompleteLastBatchWithDropLast) {
  const DataPlan plan({.samples = 5, .batch = 2, .drop_last = true});
  EXPECT_THAT(plan.global_batch({0, 4}), IsEmpty());
  EXPECT_EQ(plan.next({0, 2}), (DataPosition{1, 0}));
  EXPECT_EQ(plan.batches_per_epoch(), 2);
}

TEST(DataPlan, HasNoBatchesWithoutSamples) {
  const DataPlan plan({.samples = 0, .batch = 8});
  EXPECT_EQ(plan.batches_per_epoch(), 0);
  EXPECT_THAT(plan.global_batch({0, 0}), IsEmpty());
  EXPECT_EQ(plan.next({0, 0}), (DataPosition{1, 0}));
}

TEST(DataPlan, SharesDifferByOneSampleAndCoverTheBatch) {
  for (const int64_t size : {0, 1, 2, 3, 7, 16, 97, 1000}) {
    for (int ranks = 1; ranks <= kMostRanks; ++ranks) {
      int64_t end = 0;
      for (int rank = 0; rank < ranks; ++rank) {
        const auto [first, last] = DataPlan::share(size, rank, ranks);
        EXPECT_EQ(first, end);
        EXPECT_GE(last - first, size / ranks);
        EXPECT_LE(last - first, (size + ranks - 1) / ranks);
        end = last;
      }
      EXPECT_EQ(end, size);
    }
  }
}

TEST(DataPlan, GivesReplicasWholeVirtualShards) {
  const DataPlan plan({.samples = 100, .batch = 64, .virtual_shards = 8});
  EXPECT_EQ(plan.share_of(64, 0, 3), (std::pair<int64_t, int64_t>{0, 24}));
  EXPECT_EQ(plan.share_of(64, 1, 3), (std::pair<int64_t, int64_t>{24, 48}));
  EXPECT_EQ(plan.share_of(64, 2, 3), (std::pair<int64_t, int64_t>{48, 64}));
  for (int ranks = 1; ranks <= 10; ++ranks) EXPECT_NO_THROW(check(plan, ranks));
  EXPECT_EQ(plan.describe(3),
            "an epoch of 100 samples in 2 steps, shuffled anew each epoch (seed 0)\n"
            "  1 x 64 samples: replicas 0 to 1 take 24, replica 2 takes 16\n"
            "  last step 36 samples: replica 0 takes 15, replica 1 takes 13, replica 2 takes 8\n"
            "  each batch in 8 virtual shards\n");
}

TEST(DataPlan, RefusesOptionsThatMakeNoSense) {
  const auto plan = [](DataPlanOptions options) { return [options] { DataPlan{options}; }; };
  EXPECT_THAT(message_of(ErrorCode::invalid_argument, plan({.samples = -1})),
              HasSubstr("samples is -1"));
  EXPECT_THAT(message_of(ErrorCode::invalid_argument, plan({.samples = 5, .batch = 0})),
              HasSubstr("batch is 0"));
  EXPECT_THAT(message_of(ErrorCode::invalid_argument, plan({.samples = 5, .virtual_shards = -1})),
              HasSubstr("virtual_shards is -1"));
  EXPECT_THAT(
      message_of(ErrorCode::invalid_argument, plan({.samples = 5, .batch = 6, .drop_last = true})),
      AllOf(HasSubstr("batch is 6"), HasSubstr("5 samples")));
}

TEST(DataPlan, RefusesAPositionOutsideTheEpoch) {
  const DataPlan plan({.samples = 5, .batch = 2});
  EXPECT_THAT(message_of(ErrorCode::invalid_argument, [&] { plan.global_batch({0, 6}); }),
              HasSubstr("6 samples consumed"));
  EXPECT_THAT(message_of(ErrorCode::invalid_argument, [&] { plan.global_batch({0, -1}); }),
              HasSubstr("-1 samples consumed"));
  EXPECT_THAT(message_of(ErrorCode::invalid_argument, [&] { plan.next({-1, 0}); }),
              HasSubstr("epoch -1"));
  EXPECT_THAT(message_of(ErrorCode::invalid_argument, [] { DataPlan::share(10, 2, 2); }),
              HasSubstr("rank 2 of 2"));
}

TEST(DataPlan, CheckerNamesASampleThatIsLostOrRepeated) {
  EXPECT_THAT(message_of(ErrorCode::internal, [] { check_uses({1, 1, 0}, false); }),
              HasSubstr("sample 2 is used 0 times"));
  EXPECT_THAT(message_of(ErrorCode::internal, [] { check_uses({1, 2, 0}, true); }),
              HasSubstr("sample 1 is used 2 times"));
  EXPECT_NO_THROW(check_uses({1, 0, 1}, true));
  EXPECT_NO_THROW(check_uses({}, false));
}

TEST(DataPlan, DescribesTheShareOfEachReplica) {
  EXPECT_EQ(DataPlan({.samples = 1437, .batch = 64, .seed = 7}).describe(3),
            "an epoch of 1437 samples in 23 steps, shuffled anew each epoch (seed 7)\n"
            "  22 x 64 samples: replica 0 takes 22, replicas 1 to 2 take 21\n"
            "  last step 29 samples: replicas 0 to 1 take 10, replica 2 takes 9\n");
  EXPECT_EQ(DataPlan({.samples = 10, .batch = 4, .shuffle = false, .drop_last = true}).describe(2),
            "an epoch of 10 samples in 2 steps, in the order of the data\n"
            "  2 x 4 samples: each replica takes 2\n"
            "  2 samples are left out of each epoch\n");
  EXPECT_EQ(DataPlan({.samples = 0, .batch = 4, .shuffle = false}).describe(2),
            "an epoch of 0 samples in 0 steps, in the order of the data\n");
}

TEST(DataPlan, GivesItsNumbersAsJson) {
  EXPECT_EQ(
      DataPlan({.samples = 10, .batch = 4, .seed = 2}).to_json(3).dump(),
      R"({"samples":10,"batch":4,"seed":2,"shuffle":true,"drop_last":false,"virtual_shards":0,)"
      R"("batches_per_epoch":3,"last_batch":2,"world_size":3,"samples_per_replica":[2,1,1]})");
}

TEST(Shuffle, IsAPermutation) {
  for (const int64_t n : {0, 1, 2, 3, 17, 1000}) {
    std::vector<int64_t> order = shuffled(n, 42);
    std::sort(order.begin(), order.end());
    EXPECT_EQ(order, numbers_to(n));
  }
}

// A separate programme (Python) computed these values from the formula in the header; readers
// outside this project depend on the formula.
TEST(Shuffle, FollowsItsDocumentedFormula) {
  EXPECT_THAT(shuffled(10, 0), ElementsAre(9, 4, 2, 6, 0, 1, 7, 3, 8, 5));
  EXPECT_THAT(shuffled(5, 123456789), ElementsAre(4, 1, 0, 3, 2));
}

TEST(Shuffle, PutsEverySampleEverywhereAboutEquallyOften) {
  constexpr int kRuns = 8000;
  int counts[8][8] = {};
  for (uint64_t seed = 0; seed < kRuns; ++seed) {
    const std::vector<int64_t> order = shuffled(8, seed);
    for (size_t place = 0; place < 8; ++place) ++counts[place][order[place]];
  }
  for (const auto& place : counts) {
    for (const int count : place)
      EXPECT_NEAR(count, kRuns / 8, 150);  // Five standard deviations; the seeds are fixed.
  }
}

TEST(Shuffle, RefusesANegativeNumber) {
  EXPECT_THAT(message_of(ErrorCode::invalid_argument, [] { shuffled(-1, 0); }),
              HasSubstr("-1 samples"));
}

}  // namespace
}  // namespace trireme::plan::data_plan_test
