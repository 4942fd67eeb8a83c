#include <trireme/data/packed_source.h>

#include <ATen/ATen.h>

#include <gmock/gmock.h>
#include <trireme/data/loader.h>

#include "data_files.h"

namespace trireme::packed_source_test {
namespace {

using data::expect_error;

// Document d has the tokens 100 d, 100 d + 1, ...
class Documents : public Source {
 public:
  explicit Documents(std::vector<int64_t> lengths) : lengths_(std::move(lengths)) {}
  int64_t size() const override { return static_cast<int64_t>(lengths_.size()); }
  Example get(const Draw& draw) const override {
    const int64_t length = lengths_[static_cast<size_t>(draw.index)];
    return {at::arange(length) + 100 * draw.index, at::zeros({})};
  }
  int64_t length(int64_t document) const { return lengths_[static_cast<size_t>(document)]; }

 private:
  std::vector<int64_t> lengths_;
};

std::shared_ptr<const PackedSource> packed(const std::vector<int64_t>& lengths, int64_t tokens) {
  const auto documents = std::make_shared<const Documents>(lengths);
  return std::make_shared<const PackedSource>(
      documents,
      std::make_shared<const plan::Packing>(
          documents->size(), [documents](int64_t document) { return documents->length(document); },
          plan::PackingOptions{.tokens = tokens, .too_long = plan::TooLong::split}),
      /*padding=*/7);
}

std::vector<int64_t> values(const at::Tensor& tensor) {
  const at::Tensor row = tensor.contiguous();
  return {row.const_data_ptr<int64_t>(), row.const_data_ptr<int64_t>() + row.numel()};
}

using Row = std::vector<int64_t>;

TEST(PackedSource, GivesTokensTargetsPositionsAndDocuments) {
  const auto source = packed({3, 2}, 6);
  ASSERT_EQ(source->size(), 1);
  const Example pack = source->get(0);
  EXPECT_EQ(values(pack.data), (Row{0, 1, 2, 100, 101, 7}));
  EXPECT_EQ(values(pack.target), (Row{1, 2, -100, 101, -100, -100}));
  EXPECT_EQ(values(pack.more.at("positions")), (Row{0, 1, 2, 0, 1, 0}));
  EXPECT_EQ(values(pack.more.at("documents")), (Row{0, 0, 0, 1, 1, -1}));
}

// A token of the next pack is still the target of the last one of this.
TEST(PackedSource, SplitsALongDocument) {
  const auto source = packed({7}, 4);
  ASSERT_EQ(source->size(), 2);
  EXPECT_EQ(values(source->get(0).target), (Row{1, 2, 3, 4}));
  EXPECT_EQ(values(source->get(1).data), (Row{4, 5, 6, 7}));
  EXPECT_EQ(values(source->get(1).target), (Row{5, 6, -100, -100}));
  EXPECT_EQ(values(source->get(1).more.at("positions")), (Row{0, 1, 2, 0}));
}

// Each token of each document comes once in an epoch, and threads change nothing.
TEST(PackedSource, TrainsOnEachTokenOnceAnEpoch) {
  std::vector<int64_t> lengths;
  for (int64_t i = 0; i < 60; ++i) lengths.push_back(1 + i * 7 % 23);
  const auto source = packed(lengths, 32);
  for (const int threads : {0, 3}) {
    LoaderOptions options;
    options.batch = 4;
    options.threads = threads;
    Loader loader(source, options);
    std::vector<int64_t> seen;
    for (int64_t step = 0; step < loader.batches_per_epoch(); ++step) {
      const Batch batch = loader.next();
      const at::Tensor real = batch.more.at("documents") >= 0;
      for (const int64_t token : values(batch.data.masked_select(real))) seen.push_back(token);
    }
    std::vector<int64_t> expected;
    for (int64_t document = 0; document < 60; ++document)
      for (int64_t token = 0; token < lengths[static_cast<size_t>(document)]; ++token)
        expected.push_back(100 * document + token);
    EXPECT_THAT(seen, testing::UnorderedElementsAreArray(expected));
  }
}

TEST(PackedSource, RefusesDocumentsThatAreNotThoseOfThePlan) {
  const auto three = std::make_shared<const Documents>(std::vector<int64_t>{3, 3, 3});
  const auto plan = [](int64_t documents, int64_t length) {
    return std::make_shared<const plan::Packing>(
        documents, [length](int64_t) { return length; }, plan::PackingOptions{.tokens = 10});
  };
  expect_error([&] { PackedSource(three, plan(2, 3)); }, ErrorCode::invalid_argument,
               {"3 documents, and 2 in the plan"});
  const PackedSource longer(three, plan(3, 4));
  expect_error([&] { longer.get(0); }, ErrorCode::invalid_argument,
               {"document 0 is Long of shape [3], and the plan takes tokens 0 to 4"});
}

}  // namespace
}  // namespace trireme::packed_source_test
