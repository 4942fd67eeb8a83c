// Data sets of torch::data as sources.
#include <torch/data/datasets/base.h>
#include <torch/data/datasets/map.h>
#include <torch/data/transforms/lambda.h>
#include <torch/data/transforms/stack.h>

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <trireme/data/from_dataset.h>
#include <trireme/data/loader.h>
#include <thread>

#include "../base/expect_error.h"

namespace trireme::from_dataset_test {
namespace {

using ::testing::HasSubstr;

struct Alone {
  int rank() const { return 0; }
  int size() const { return 1; }
};

class Squares : public torch::data::datasets::Dataset<Squares> {
 public:
  explicit Squares(std::optional<size_t> size = 10) : size_(size) {}
  torch::data::Example<> get(size_t index) override {
    const bool is_alone = ++inside_ == 1;  // A copy is used by one thread at a time.
    std::this_thread::yield();
    --inside_;
    const auto number = static_cast<double>(index);
    return {at::full({2}, is_alone ? number : -1, at::kDouble),
            at::full({}, number * number, at::kDouble)};
  }
  std::optional<size_t> size() const override { return size_; }

 private:
  std::optional<size_t> size_;
  int inside_ = 0;
};

TEST(FromDataset, GivesTheSamplesWithAndWithoutAStack) {
  const auto plain = from_dataset(Squares());
  const auto stacked = from_dataset(Squares().map(torch::data::transforms::Stack<>()));
  ASSERT_EQ(plain->size(), 10);
  for (const int64_t index : {0, 3, 9})
    for (const auto& source : {plain, stacked}) {
      const Example example = source->get(Draw(index));
      EXPECT_TRUE(example.data.equal(at::full({2}, static_cast<double>(index), at::kDouble)));
      EXPECT_EQ(example.target.item<double>(), static_cast<double>(index * index));
      EXPECT_EQ(example.target.dim(), 0);
    }
  EXPECT_TRUE(plain->get_batch({4, 2}).target.equal(at::tensor({16.0, 4.0})));
}

TEST(FromDataset, RandomTransformsDrawFromTheSample) {
  const auto noisy = from_dataset(
      Squares().map(torch::data::transforms::Lambda<torch::data::Example<>>([](auto example) {
        return torch::data::Example<>(example.data + at::rand_like(example.data), example.target);
      })));
  const auto batch = [&](const Draws& draws) { return noisy->get_batch(draws).data; };
  const at::Tensor all = batch(Draws({1, 2, 3}, 0, 7));
  EXPECT_TRUE(batch(Draws({3}, 0, 7))[0].equal(all[2])) << "whatever is loaded with it";
  EXPECT_FALSE(batch(Draws({3}, 1, 7))[0].equal(all[2])) << "another epoch";
}

class OneTensor : public torch::data::datasets::Dataset<OneTensor, torch::data::TensorExample> {
 public:
  torch::data::TensorExample get(size_t index) override {
    return at::full({3}, static_cast<double>(index));
  }
  std::optional<size_t> size() const override { return 4; }
};

TEST(FromDataset, OneTensorIsItsOwnTarget) {
  const Example example = from_dataset(OneTensor())->get(Draw(2));
  EXPECT_TRUE(example.data.equal(at::full({3}, 2.0)));
  EXPECT_TRUE(example.target.equal(example.data));
}

TEST(FromDataset, LoadsInSeveralThreads) {
  const auto source = from_dataset(Squares(200));
  Loader loader(Alone(), source, {.batch = 10, .threads = 4});
  double sum = 0;
  for (int i = 0; i < 20; ++i) sum += loader.next().data.sum().item<double>();
  EXPECT_EQ(sum, 2 * 199 * 200 / 2);
}

TEST(FromDataset, NeedsASize) {
  EXPECT_THAT(message_of(ErrorCode::invalid_argument, [] { from_dataset(Squares(std::nullopt)); }),
              HasSubstr("does not tell its size"));
  EXPECT_THAT(message_of(ErrorCode::invalid_argument, [] { from_dataset(Squares(0)); }),
              HasSubstr("no samples"));
}

}  // namespace
}  // namespace trireme::from_dataset_test
