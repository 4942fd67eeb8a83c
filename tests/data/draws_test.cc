// The draws of a source, and named tensors of batches.
#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include <trireme/data/loader.h>
#include <map>

#include "data_files.h"

namespace trireme::draws_test {
namespace {

using data::expect_error;

// Augments: each sample has noise that LibTorch draws, and shows its draw.
class Noisy : public Source {
 public:
  int64_t size() const override { return 40; }
  Example get(const Draw& draw) const override {
    return {at::rand({4}, at::kDouble),
            at::tensor({draw.index, draw.epoch, static_cast<int64_t>(draw.seed)}),
            {{"mask", at::full({2}, static_cast<double>(draw.index))},
             {"length", at::scalar_tensor(draw.index, at::kLong)}}};
  }
};

using Seen = std::map<std::pair<int64_t, int64_t>, at::Tensor>;  // (epoch, index) -> data.

Seen seen_by(int ranks, int threads, plan::DataPosition from = {}, int64_t batches = 10) {
  Seen seen;
  for (int rank = 0; rank < ranks; ++rank) {
    Loader loader(std::make_shared<Noisy>(),
                  {.batch = 8, .seed = 3, .threads = threads, .dtype = at::kDouble}, rank, ranks);
    loader.seek(from);
    for (int64_t i = 0; i < batches; ++i) {
      const Batch batch = loader.next();
      for (int64_t row = 0; row < batch.size(); ++row)
        seen[{batch.position.epoch, batch.indices[static_cast<size_t>(row)]}] = batch.data[row];
    }
  }
  return seen;
}

TEST(Draws, AreTheSameForEveryNumberOfRanksAndThreads) {
  const Seen alone = seen_by(1, 0);
  ASSERT_EQ(alone.size(), 80U);  // Two epochs.
  for (const int ranks : {1, 2, 3})
    for (const int threads : {0, 1, 3}) {
      const Seen seen = seen_by(ranks, threads);
      ASSERT_EQ(seen.size(), 80U);
      for (const auto& [sample, data] : alone)
        EXPECT_TRUE(at::equal(data, seen.at(sample))) << ranks << " ranks, " << threads;
    }
}

TEST(Draws, AreTheSameInAResumedRun) {
  const Seen whole = seen_by(1, 0), rest = seen_by(1, 2, {1, 16}, 3);
  ASSERT_EQ(rest.size(), 24U);
  for (const auto& [sample, data] : rest) EXPECT_TRUE(at::equal(data, whole.at(sample)));
}

TEST(Draws, DifferBetweenSamplesAndEpochs) {
  const Seen seen = seen_by(1, 0);
  EXPECT_FALSE(at::equal(seen.at({0, 5}), seen.at({0, 6})));
  EXPECT_FALSE(at::equal(seen.at({0, 5}), seen.at({1, 5})));
}

TEST(Draws, TellIndexEpochAndRandomBits) {
  const Example rows = Noisy().get_batch({{7, 9}, /*of_epoch=*/4, /*random=*/11});
  EXPECT_EQ(rows.target[1][0].item<int64_t>(), 9);
  EXPECT_EQ(rows.target[1][1].item<int64_t>(), 4);
  EXPECT_NE(rows.target[0][2].item<int64_t>(), rows.target[1][2].item<int64_t>());
}

// The caller's own random numbers go on as if no sample had been loaded.
TEST(Draws, LeaveTheCallersNumbersAlone) {
  at::manual_seed(1);
  const at::Tensor expected = at::rand({3});
  at::manual_seed(1);
  Noisy().get_batch({1, 2});
  EXPECT_TRUE(at::equal(at::rand({3}), expected));
}

TEST(NamedTensors, ReachTheBatchInItsType) {
  for (const int threads : {0, 1}) {
    Loader loader(std::make_shared<Noisy>(),
                  {.batch = 4, .shuffle = false, .threads = threads, .dtype = at::kFloat});
    const Batch batch = loader.next();
    EXPECT_EQ(batch.tensor("mask").scalar_type(), at::kFloat);
    EXPECT_EQ(batch.tensor("mask").sizes(), (at::IntArrayRef{4, 2}));
    EXPECT_TRUE(at::equal(batch.tensor("length"), at::arange(4)));
    EXPECT_TRUE(batch.tensor("data").is_same(batch.data));
    expect_error([&] { (void)batch.tensor("lengths"); }, ErrorCode::invalid_argument,
                 {"'lengths'", "data, target, length, mask"});
  }
}

TEST(NamedTensors, KeepTheirOtherSizesInAnEmptyShare) {
  Loader loader(std::make_shared<Noisy>(), {.batch = 3, .shuffle = false, .drop_last = false},
                /*rank=*/2, /*world_size=*/3);
  loader.seek({0, 39});  // One sample is left, and it is another rank's.
  const Batch batch = loader.next();
  EXPECT_EQ(batch.size(), 0);
  EXPECT_EQ(batch.tensor("mask").sizes(), (at::IntArrayRef{0, 2}));
}

TEST(NamedTensors, ThatOnlySomeSamplesHaveAreRefused) {
  class Forgetful : public Noisy {
   public:
    Example get(const Draw& draw) const override {
      Example example = Noisy::get(draw);
      if (draw.index == 3) example.more.erase("mask");
      return example;
    }
  };
  expect_error([] { Forgetful().get_batch({1, 3}); }, ErrorCode::invalid_argument,
               {"sample 3", "[length]", "sample 1", "[length, mask]"});
}

}  // namespace
}  // namespace trireme::draws_test
