#include <trireme/data/source.h>

#include <ATen/ATen.h>

#include <gmock/gmock.h>

#include "data_files.h"

namespace trireme::source_test {
namespace {

using data::expect_error;

// The two methods that a user has to write.
class Squares : public Source {
 public:
  int64_t size() const override { return 100; }
  Example get(const Draw& draw) const override {
    const int64_t index = draw.index;
    const auto value = static_cast<float>(index);
    return {at::tensor({value, value * value}), at::scalar_tensor(index, at::kLong)};
  }
};

class Ragged : public Source {
 public:
  int64_t size() const override { return 100; }
  Example get(const Draw& draw) const override {
    const int64_t index = draw.index;
    return {at::zeros({1 + index % 2}),
            index == 50 ? at::Tensor() : at::scalar_tensor(index, at::kLong)};
  }
};

data::ImageTable small_table() {
  return {.origin = "small",
          .count = 3,
          .channels = 2,
          .height = 1,
          .width = 2,
          .scale = 4.0f,
          .pixels = {0, 1, 2, 3, 4, 3, 2, 1, 0, 0, 4, 4},
          .labels = {2, 0, 1},
          .classes = 3};
}

TEST(TwoMethodSource, StacksItsSamplesInTheRequestedOrder) {
  const Example batch = Squares().get_batch({3, 0, 3});
  EXPECT_TRUE(
      at::equal(batch.data, at::tensor({3.0f, 9.0f, 0.0f, 0.0f, 3.0f, 9.0f}).view({3, 2})));
  EXPECT_TRUE(at::equal(batch.target, at::tensor({3, 0, 3}, at::kLong)));
}

TEST(TwoMethodSource, NamesTheSampleThatDoesNotFit) {
  expect_error([] { Ragged().get_batch({2, 4, 7}); }, ErrorCode::invalid_argument,
               {"data of sample 7 is [2]", "sample 2", "[1]"});
  expect_error([] { Ragged().get_batch({2, 50}); }, ErrorCode::invalid_argument,
               {"target of sample 50 is nothing"});
  expect_error([] { Ragged().get_batch({50}); }, ErrorCode::invalid_argument,
               {"target of sample 50 is nothing"});
}

TEST(TwoMethodSource, RefusesAnEmptyBatch) {
  expect_error([] { Squares().get_batch({}); }, ErrorCode::invalid_argument, {"at least one"});
}

TEST(ImageSource, GivesFloatsFromZeroToOneAndLabels) {
  const ImageSource source(small_table());
  EXPECT_EQ(source.size(), 3);
  const Example batch = source.get_batch({2, 0});
  EXPECT_TRUE(at::equal(
      batch.data,
      at::tensor({0.0f, 0.0f, 1.0f, 1.0f, 0.0f, 0.25f, 0.5f, 0.75f}).view({2, 2, 1, 2})));
  EXPECT_TRUE(at::equal(batch.target, at::tensor({1, 2}, at::kLong)));
}

TEST(ImageSource, GivesOneSampleWithoutABatchDimension) {
  const Example example = ImageSource(small_table()).get(1);
  EXPECT_TRUE(at::equal(example.data, at::tensor({1.0f, 0.75f, 0.5f, 0.25f}).view({2, 1, 2})));
  EXPECT_EQ(example.target.dim(), 0);
  EXPECT_EQ(example.target.item<int64_t>(), 0);
}

TEST(ImageSource, RefusesSamplesThatDoNotExist) {
  const ImageSource source(small_table());
  expect_error([&] { source.get(3); }, ErrorCode::invalid_argument, {"sample 3", "0..2"});
  expect_error([&] { source.get_batch({0, -1}); }, ErrorCode::invalid_argument, {"sample -1"});
}

TEST(ImageSource, RefusesATableThatDoesNotFillItsSizes) {
  data::ImageTable pixels = small_table(), labels = small_table(), scale = small_table();
  pixels.pixels.pop_back();
  labels.labels.push_back(0);
  scale.scale = 0;
  expect_error([&] { ImageSource{pixels}; }, ErrorCode::invalid_argument,
               {"small", "11 pixels", "3 images of 2 x 1 x 2"});
  expect_error([&] { ImageSource{labels}; }, ErrorCode::invalid_argument, {"4 labels"});
  expect_error([&] { ImageSource{scale}; }, ErrorCode::invalid_argument, {"scale"});
}

TEST(TensorSource, GivesRowsOfAnyTypeAndLayout) {
  const at::Tensor rows = at::arange(24, at::kDouble)
                              // The data has the shape [4, 2, 3] and is not contiguous.
                              .view({3, 2, 4})
                              .transpose(0, 2);
  const at::Tensor targets = at::arange(4, at::kFloat).view({4, 1});
  const TensorSource source(rows, targets);
  EXPECT_EQ(source.size(), 4);
  const Example batch = source.get_batch({3, 1});
  const at::Tensor order = at::tensor({3, 1}, at::kLong);
  EXPECT_TRUE(at::equal(batch.data, rows.index_select(0, order)));
  EXPECT_TRUE(at::equal(batch.target, targets.index_select(0, order)));
  EXPECT_TRUE(at::equal(source.get(2).data, rows[2]));
}

TEST(TensorSource, GivesScalarTargetsForAVector) {
  const TensorSource source(at::zeros({2, 3}), at::tensor({4, 5}, at::kLong));
  EXPECT_EQ(source.get(1).target.dim(), 0);
  EXPECT_TRUE(at::equal(source.get_batch({1, 0, 1}).target, at::tensor({5, 4, 5}, at::kLong)));
}

TEST(TensorSource, RefusesSizesThatDiffer) {
  expect_error([] { TensorSource(at::zeros({3, 2}), at::zeros({4})); },
               ErrorCode::invalid_argument, {"[3, 2]", "[4]"});
  expect_error([] { TensorSource(at::zeros({}), at::zeros({})); }, ErrorCode::invalid_argument,
               {"first sizes"});
  expect_error([] { TensorSource(at::Tensor(), at::zeros({4})); }, ErrorCode::invalid_argument,
               {"nothing"});
}

TEST(TensorSource, RefusesSamplesThatDoNotExist) {
  const TensorSource source(at::zeros({3, 2}), at::zeros({3}));
  expect_error([&] { source.get_batch({0, 3}); }, ErrorCode::invalid_argument,
               {"sample 3", "0..2"});
  expect_error([&] { source.get(-1); }, ErrorCode::invalid_argument, {"sample -1"});
}

}  // namespace
}  // namespace trireme::source_test
