#include <trireme/data/loader.h>

#include <ATen/ATen.h>

#include <gmock/gmock.h>

#include <algorithm>
#include <numeric>

#include "data_files.h"
#include "numbered.h"

namespace trireme::loader_test {
namespace {

using data::expect_error;
using plan::DataPosition;

std::vector<int64_t> all(int64_t samples) {
  std::vector<int64_t> numbers(static_cast<size_t>(samples));
  std::iota(numbers.begin(), numbers.end(), 0);
  return numbers;
}

TEST(Loader, GivesTheTensorsOfTheIndicesItNames) {
  Loader loader(numbered(10), {.batch = 4, .seed = 3});
  for (int step = 0; step < 6; ++step) {
    const Batch batch = loader.next();
    ASSERT_EQ(batch.data.sizes(), at::IntArrayRef({batch.size(), 2, 3}));
    for (int64_t row = 0; row < batch.size(); ++row) {
      const int64_t index = batch.indices[static_cast<size_t>(row)];
      EXPECT_EQ(batch.target[row].item<int64_t>(), index);
      EXPECT_TRUE(at::equal(batch.data[row], at::full({2, 3}, static_cast<float>(index))));
    }
  }
}

// The device "meta" has no numbers, but says where a tensor is.
TEST(Loader, GivesBatchesOnTheirDevice) {
  for (const int threads : {0, 2}) {
    Loader loader(numbered(10), {.batch = 4, .threads = threads, .device = at::kMeta});
    const Batch batch = loader.next();
    EXPECT_EQ(batch.data.device().type(), at::kMeta);
    EXPECT_EQ(batch.target.device().type(), at::kMeta);
    EXPECT_EQ(batch.data.sizes(), at::IntArrayRef({4, 2, 3}));
  }
}

TEST(Loader, UsesEverySampleOnceAnEpochInAnotherOrderEachEpoch) {
  Loader loader(numbered(50), {.batch = 8, .seed = 1});
  std::vector<std::vector<int64_t>> orders;
  for (int epoch = 0; epoch < 4; ++epoch) {
    const std::vector<int64_t> order = next_epoch(loader);
    EXPECT_THAT(order, testing::UnorderedElementsAreArray(all(50)));
    EXPECT_THAT(orders, testing::Not(testing::Contains(order)));
    orders.push_back(order);
  }
}

TEST(Loader, GivesEachSeedItsOwnOrder) {
  Loader one(numbered(50), {.batch = 8, .seed = 1}), same(numbered(50), {.batch = 8, .seed = 1}),
      other(numbered(50), {.batch = 8, .seed = 2});
  const std::vector<int64_t> order = next_samples(one, 20);
  EXPECT_EQ(next_samples(same, 20), order);
  EXPECT_NE(next_samples(other, 20), order);
}

TEST(Loader, KeepsTheSourcesOrderWithoutShuffle) {
  Loader loader(numbered(10), {.batch = 4, .shuffle = false});
  EXPECT_EQ(next_epoch(loader), all(10));
  EXPECT_EQ(next_epoch(loader), all(10));
}

TEST(Loader, CountsTheBytesOfASourceWithoutStages) {
  Loader loader(numbered(10), {.batch = 4, .threads = 0});
  loader.next(), loader.next();
  const std::vector<data::StageUse> stages = loader.stage_use();
  ASSERT_EQ(stages.size(), 1u);
  EXPECT_EQ(stages[0].name, "load");
  EXPECT_EQ(stages[0].samples, 8);
  EXPECT_EQ(stages[0].bytes, 8 * (2 * 3 * 4 + 8));
}

TEST(Loader, GivesAnyNumberOfReplicasSharesOfTheSameGlobalBatch) {
  constexpr int64_t kBatch = 8;
  for (const int world_size : {1, 2, 3, 4, 5}) {
    Loader alone(numbered(50), {.batch = kBatch, .seed = 1});
    std::vector<Loader> replicas;
    for (int rank = 0; rank < world_size; ++rank)
      replicas.emplace_back(numbered(50), LoaderOptions{.batch = kBatch, .seed = 1}, rank,
                            world_size);
    for (int step = 0; step < 20; ++step) {
      const Batch whole = alone.next();
      std::vector<int64_t> together;
      for (Loader& replica : replicas) {
        const Batch share = replica.next();
        EXPECT_EQ(share.global_size, whole.size());
        EXPECT_EQ(share.position, whole.position);
        EXPECT_EQ(share.next, whole.next);
        EXPECT_EQ(share.data.size(0), share.size());
        together.insert(together.end(), share.indices.begin(), share.indices.end());
      }
      ASSERT_EQ(together, whole.indices) << world_size << " replicas, step " << step;
    }
  }
}

TEST(Loader, GivesAReplicaWithoutSamplesAnEmptyTensorOfTheRightShape) {
  for (const int threads : {0, 1}) {
    Loader last(numbered(5), {.batch = 4, .threads = threads, .dtype = at::kDouble}, 3, 4);
    EXPECT_EQ(last.next().size(), 1);
    const Batch batch = last.next();  // One sample is left for four replicas.
    EXPECT_EQ(batch.global_size, 1);
    EXPECT_EQ(batch.size(), 0);
    EXPECT_EQ(batch.data.sizes(), at::IntArrayRef({0, 2, 3}));
    EXPECT_EQ(batch.target.sizes(), at::IntArrayRef({0}));
    EXPECT_EQ(batch.data.scalar_type(), at::kDouble);
    EXPECT_EQ(batch.target.scalar_type(), at::kLong);
  }
}

TEST(Loader, DropsAnIncompleteBatchWithDropLast) {
  Loader loader(numbered(10), {.batch = 4, .drop_last = true});
  EXPECT_EQ(loader.batches_per_epoch(), 2);
  for (int step = 0; step < 6; ++step) {
    const Batch batch = loader.next();
    EXPECT_EQ(batch.size(), 4);
    EXPECT_EQ(batch.position, (DataPosition{step / 2, step % 2 * 4}));
  }
}

TEST(Loader, ConvertsOnlyFloatingPointDataAndTargets) {
  const auto source =
      std::make_shared<TensorSource>(at::full({4, 2}, 0.5f), at::full({4, 1}, 0.25f));
  const Batch regression = Loader(source, {.batch = 2, .dtype = at::kDouble}).next();
  EXPECT_TRUE(at::equal(regression.data, at::full({2, 2}, 0.5, at::kDouble)));
  EXPECT_TRUE(at::equal(regression.target, at::full({2, 1}, 0.25, at::kDouble)));
  const auto tokens =
      std::make_shared<TensorSource>(at::ones({4, 2}, at::kLong), at::ones({4}, at::kLong));
  EXPECT_EQ(Loader(tokens, {.batch = 2, .dtype = at::kDouble}).next().data.scalar_type(),
            at::kLong);
}

TEST(Loader, KnowsItsPositionAndTheStartOfAnEpoch) {
  Loader loader(numbered(10), {.batch = 4});
  EXPECT_EQ(loader.batches_per_epoch(), 3);
  const std::vector<DataPosition> positions{{0, 0}, {0, 4}, {0, 8}, {1, 0}, {1, 4}};
  for (size_t step = 0; step + 1 < positions.size(); ++step) {
    EXPECT_EQ(loader.position(), positions[step]);
    EXPECT_EQ(loader.at_epoch_start(), positions[step].consumed == 0);
    const Batch batch = loader.next();
    EXPECT_EQ(batch.position, positions[step]);
    EXPECT_EQ(batch.next, positions[step + 1]);
  }
}

TEST(Loader, ResumesAnywhereWithTheSameBatches) {
  Loader undisturbed(numbered(23), {.batch = 4, .seed = 9});
  std::vector<DataPosition> positions;
  std::vector<std::vector<int64_t>> batches;
  for (int step = 0; step < 20; ++step) {
    positions.push_back(undisturbed.position());
    batches.push_back(undisturbed.next().indices);
  }
  for (const int threads : {0, 1, 3}) {
    for (size_t start = 0; start < positions.size(); ++start) {
      Loader resumed(numbered(23), {.batch = 4, .seed = 9, .threads = threads});
      resumed.seek(positions[start]);
      EXPECT_EQ(resumed.position(), positions[start]);
      for (size_t step = start; step < std::min(start + 4, batches.size()); ++step)
        ASSERT_EQ(resumed.next().indices, batches[step]);
    }
  }
}

TEST(Loader, SeeksBackAndForthWhileBatchesAreReady) {
  Loader loader(numbered(40), {.batch = 4, .shuffle = false, .threads = 2, .prefetch = 4});
  EXPECT_THAT(loader.next().indices, testing::ElementsAre(0, 1, 2, 3));
  loader.seek({0, 20});
  EXPECT_THAT(loader.next().indices, testing::ElementsAre(20, 21, 22, 23));
  loader.seek({0, 4});
  EXPECT_THAT(loader.next().indices, testing::ElementsAre(4, 5, 6, 7));
  EXPECT_THAT(loader.next().indices, testing::ElementsAre(8, 9, 10, 11));
}

TEST(Loader, UsesEachSampleOnceWhenBatchAndWorldSizeChange) {
  Loader before(numbered(50), {.batch = 8, .seed = 5});
  std::vector<int64_t> samples = next_samples(before, 3);
  std::vector<Loader> after;
  for (int rank = 0; rank < 3; ++rank)
    after.emplace_back(numbered(50), LoaderOptions{.batch = 5, .seed = 5}, rank, 3);
  for (Loader& replica : after) {
    replica.seek(before.position());
    while (replica.position().epoch == 0) {
      const std::vector<int64_t> share = replica.next().indices;
      samples.insert(samples.end(), share.begin(), share.end());
    }
  }
  EXPECT_THAT(samples, testing::UnorderedElementsAreArray(all(50)));
}

TEST(Loader, TreatsTheEndOfAnEpochAsTheStartOfTheNext) {
  Loader loader(numbered(10), {.batch = 4}),
      dropping(numbered(10), {.batch = 4, .drop_last = true});
  loader.seek({2, 10});
  EXPECT_EQ(loader.position(), (DataPosition{3, 0}));
  dropping.seek({2, 8});
  EXPECT_EQ(dropping.position(), (DataPosition{3, 0}));
}

TEST(Loader, RefusesAPositionOutsideTheDataSet) {
  Loader loader(numbered(10), {.batch = 4});
  for (const DataPosition position :
       {DataPosition{0, 11}, DataPosition{-1, 0}, DataPosition{0, -1}})
    expect_error([&] { loader.seek(position); }, ErrorCode::invalid_argument, {"10 samples"});
}

TEST(LoaderIterator, CoversOneEpochEachTime) {
  Loader loader(numbered(10), {.batch = 4});
  for (int epoch = 0; epoch < 3; ++epoch) {
    std::vector<int64_t> samples;
    for (const Batch& batch : loader) {
      EXPECT_EQ(batch.position.epoch, epoch);
      samples.insert(samples.end(), batch.indices.begin(), batch.indices.end());
    }
    EXPECT_THAT(samples, testing::UnorderedElementsAreArray(all(10)));
    EXPECT_TRUE(loader.at_epoch_start());
  }
}

TEST(LoaderIterator, CoversTheRestOfAnEpoch) {
  Loader loader(numbered(10), {.batch = 4, .shuffle = false});
  for (const Batch& batch : loader) {
    EXPECT_EQ(batch.indices.front(), 0);
    break;
  }
  std::vector<int64_t> rest;
  for (const Batch& batch : loader)
    rest.insert(rest.end(), batch.indices.begin(), batch.indices.end());
  EXPECT_THAT(rest, testing::ElementsAre(4, 5, 6, 7, 8, 9));
}

// A source that fetches its samples ahead of need.
class Fetching : public Numbered {
 public:
  using Numbered::Numbered;
  int64_t reads_ahead() const override { return 20; }
  void announce(const Draws& draws) const override {
    announced.insert(announced.end(), draws.indices.begin(), draws.indices.end());
  }
  mutable std::vector<int64_t> announced;
};

TEST(LoaderAnnouncements, NameTheSamplesOfThisReplicaInTheirOrder) {
  for (const int threads : {0, 2}) {
    const auto source = std::make_shared<Fetching>(40);
    Loader loader(source, {.batch = 8, .threads = threads}, 1, 2);
    std::vector<int64_t> used = next_samples(loader, 1);
    EXPECT_GE(source->announced.size(), 10U);
    EXPECT_LE(source->announced.size(), 16U);
    const auto more = next_samples(loader, 9);  // Two epochs.
    used.insert(used.end(), more.begin(), more.end());
    ASSERT_GE(source->announced.size(), used.size());
    EXPECT_TRUE(std::equal(used.begin(), used.end(), source->announced.begin()));
  }
}

TEST(LoaderAnnouncements, BeginAnewWhereTheCallerSeeksBack) {
  const auto source = std::make_shared<Fetching>(40);
  Loader loader(source, {.batch = 8});
  next_samples(loader, 3);
  source->announced.clear();
  loader.seek({.epoch = 0, .consumed = 8});
  const auto used = next_samples(loader, 1);
  ASSERT_GE(source->announced.size(), used.size());
  EXPECT_TRUE(std::equal(used.begin(), used.end(), source->announced.begin()));
}

TEST(LoaderOptionsCheck, RefusesAGlobalBatchSmallerThanTheReplicas) {
  expect_error(
      [] { Loader(numbered(10), {.batch = 2}, 0, 3); }, ErrorCode::invalid_argument,
      {"[data] global batch 2 is smaller than the 3 replicas; try: data.batch of at least "
       "3, or fewer replicas"});
}

TEST(LoaderOptionsCheck, NamesEachWrongOption) {
  const auto making = [](LoaderOptions options, int rank = 0, int world_size = 1) {
    return [=] { Loader(numbered(10), options, rank, world_size); };
  };
  expect_error(making({.batch = 0}), ErrorCode::invalid_argument, {"global batch 0"});
  expect_error(making({.batch = 20, .drop_last = true}), ErrorCode::invalid_argument,
               {"20", "10"});
  expect_error(making({.threads = -2}), ErrorCode::invalid_argument, {"data.threads", "-2"});
  expect_error(making({.threads = 100000}), ErrorCode::invalid_argument,
               {"data.threads", "100000"});
  expect_error(making({.prefetch = -2}), ErrorCode::invalid_argument, {"data.prefetch", "-2"});
  expect_error(making({.dtype = at::kLong}), ErrorCode::invalid_argument, {"dtype", "Long"});
  expect_error(making({.timeout = Milliseconds(0)}), ErrorCode::invalid_argument, {"timeout"});
  expect_error(making({}, 2, 2), ErrorCode::invalid_argument, {"rank 2 of 2"});
  expect_error(making({}, 0, 0), ErrorCode::invalid_argument, {"rank 0 of 0"});
  expect_error([] { Loader(numbered(0), {}); }, ErrorCode::invalid_argument, {"no samples"});
  expect_error([] { Loader(nullptr, {}); }, ErrorCode::invalid_argument, {"no source"});
}

}  // namespace
}  // namespace trireme::loader_test
