#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include <trireme/data/chained_source.h>
#include <trireme/data/kinds/sample_plan.h>
#include <trireme/data/kinds/zip_set.h>
#include <trireme/data/loader.h>
#include <trireme/data/packed_source.h>
#include <trireme/data/pad.h>
#include <trireme/data/pipeline/batch_mix.h>
#include <trireme/data/pipeline/document_source.h>
#include <trireme/data/pipeline/functions.h>
#include <trireme/data/pipeline/pipeline_source.h>

#include "data_files.h"
#include "made_documents.h"
#include "made_records.h"
#include "numbered.h"

namespace trireme::sample_plan_test {
namespace {

using data::expect_error;
using data::MadeDocuments;
using data::SamplePlan;
using Numbers = std::vector<int64_t>;

std::shared_ptr<MadeDocuments> documents(Numbers lengths = {3, 9, 2, 5, 4, 7, 3, 2}) {
  return std::make_shared<MadeDocuments>(std::move(lengths));
}

SamplePlan planned(const std::shared_ptr<MadeDocuments>& reader, const std::string& stages,
                   Numbers subset = {}) {
  return data::plan_samples(reader, std::move(subset), data::parse_stages("data.stages", stages),
                            data::choose_fields(reader->fields(), {}));
}

Numbers numbers_of(const SamplePlan& plan) {
  Numbers numbers;
  for (int64_t i = 0; i < plan.samples; ++i) numbers.push_back(plan.number_of(i));
  return numbers;
}

Numbers values(const at::Tensor& tensor) {
  const at::Tensor row = tensor.contiguous();
  return {row.const_data_ptr<int64_t>(), row.const_data_ptr<int64_t>() + row.numel()};
}

TEST(SamplePlan, TakesAndRepeats) {
  const auto reader = documents();
  EXPECT_EQ(planned(reader, "").samples, 8);
  EXPECT_TRUE(planned(reader, "").subset.empty());
  EXPECT_EQ(planned(reader, "take(3)").subset, (Numbers{0, 1, 2}));
  EXPECT_EQ(planned(reader, "take(2)", {1, 4, 6}).subset, (Numbers{1, 4}));
  EXPECT_EQ(planned(reader, "take(20)").samples, 8);
  EXPECT_EQ(numbers_of(planned(reader, "take(2) | repeat(3)")), (Numbers{0, 1, 0, 1, 0, 1}));
  EXPECT_EQ(numbers_of(planned(reader, "take(3) | repeat(3) | take(4) | repeat(2)")),
            (Numbers{0, 1, 2, 0, 0, 1, 2, 0}));
}

TEST(SamplePlan, KnowsTheBlocksOfItsSamples) {
  const auto reader = documents();
  EXPECT_EQ(planned(reader, "").blocks, (Numbers{3, 5}));
  EXPECT_EQ(planned(reader, "", {1, 4, 6}).blocks, (Numbers{1, 2}));
  EXPECT_EQ(planned(reader, "take(4) | repeat(2)").blocks, (Numbers{3, 1, 3, 1}));
  EXPECT_EQ(planned(reader, "take(2)").blocks, (Numbers{2}));
  EXPECT_EQ(planned(reader, "pack(9, window=4)").blocks.size(), 2u);
}

TEST(SamplePlan, PacksTheDocumentsThatAreNotHeldOut) {
  const auto reader = documents();
  const SamplePlan plan = planned(reader, "pack(9)", {0, 1, 3, 6});
  ASSERT_TRUE(plan.packing);
  EXPECT_EQ(plan.packing->tokens(), 3 + 9 + 5 + 3);
  const PackedSource source(std::make_shared<data::DocumentSource>(reader, "tokens", plan.subset),
                            plan.packing);
  Numbers tokens;
  for (int64_t pack = 0; pack < source.size(); ++pack) {
    const Example one = source.get({pack});
    for (const int64_t token : values(one.data.masked_select(one.more.at("documents").ge(0))))
      tokens.push_back(token);
  }
  EXPECT_THAT(tokens,
              testing::UnorderedElementsAre(0, 1, 2, 100, 101, 102, 103, 104, 105, 106, 107, 108,
                                            300, 301, 302, 303, 304, 600, 601, 602));
}

TEST(SamplePlan, NamesADocumentThatIsTooLongOrChanged) {
  const auto reader = documents();
  expect_error([&] { planned(reader, "pack(8)"); }, ErrorCode::invalid_argument,
               {"made.jsonl, line 2", "9 tokens", "long=split"});
  EXPECT_EQ(planned(reader, "pack(8, long=split)").packing->tokens(), 35);
  expect_error([&] { planned(documents({0, 0, 0, 0}), "pack(8)"); }, ErrorCode::invalid_argument,
               {"empty"});
  reader->longer_than_known = 2;
  const data::DocumentSource source(reader, "tokens", {});
  expect_error([&] { source.get({2}); }, ErrorCode::corrupt,
               {"made.jsonl, line 3", "3 tokens, and 2 by the index"});
}

TEST(SamplePlan, RefusesToPadTokensOfUnknownLengths) {
  expect_error([&] { planned(documents(), "map(f) | pad"); }, ErrorCode::invalid_argument,
               {"map stands in front of pad"});
  EXPECT_EQ(planned(documents(), "filter(f) | pad").longest, 9);
}

TEST(SamplePlan, NamesTheLongestAndTheShortestDocumentWhereNothingEvensThemOut) {
  EXPECT_EQ(planned(documents(), "").uneven,
            "made.jsonl, line 2 has 9 tokens, and made.jsonl, line 3 has 2 tokens");
  EXPECT_EQ(planned(documents(), "take(4) | repeat(2)", {3, 4, 5, 6, 7}).uneven,
            "made.jsonl, line 6 has 7 tokens, and made.jsonl, line 7 has 3 tokens");
  for (const char* const stages :
       {"pad", "pack(9)", "bucket(window=2, batch=4)", "map(f)", "filter(f)", "take(1)"})
    EXPECT_EQ(planned(documents(), stages).uneven, "") << stages;
  EXPECT_EQ(planned(documents({4, 4, 4}), "").uneven, "");
  // No sample can be made of one token.
  EXPECT_EQ(planned(documents({4, 1, 4}), "").uneven, "");
}

TEST(SamplePlan, BucketsAskForTheLengthsOfTheSamples) {
  const SamplePlan plan =
      planned(documents(), "take(5) | bucket(window=2, batch=4) | repeat(2)", {1, 2, 3, 4, 5, 6});
  ASSERT_TRUE(plan.by_length);
  EXPECT_EQ(plan.by_length->batch, 4);
  Numbers lengths;
  for (int64_t i = 0; i < plan.samples; ++i) lengths.push_back(plan.by_length->length(i));
  EXPECT_EQ(lengths, (Numbers{9, 2, 5, 4, 7, 9, 2, 5, 4, 7}));
}

TEST(Pad, PadsDataTargetsAndTensorsOfTheSameLength) {
  const auto example = [](int64_t length) {
    return Example{at::arange(length),
                   at::arange(length),
                   {{"mask", at::ones({length})}, {"id", at::full({2}, length)}}};
  };
  const Example batch = pad_examples({example(2), example(5)}, {7, 8},
                                     {.multiple = 4, .value = 9, .pads_target = true}, 0);
  EXPECT_EQ(values(batch.data[0]), (Numbers{0, 1, 9, 9, 9, 9, 9, 9}));
  EXPECT_EQ(values(batch.target[1]), (Numbers{0, 1, 2, 3, 4, -100, -100, -100}));
  EXPECT_EQ(batch.more.at("mask").sum().item<double>(), 7);
  EXPECT_EQ(batch.more.at("mask").size(1), 8);
  EXPECT_EQ(batch.more.at("id").size(1), 2);
  EXPECT_EQ(values(batch.more.at("lengths")), (Numbers{2, 5}));
  EXPECT_EQ(pad_examples({example(3)}, {0}, {}, 6).data.size(1), 6);
}

TEST(Pad, NamesASampleThatDoesNotFit) {
  const Example right{at::arange(3), at::arange(3)}, wrong{at::arange(3), at::arange(2)};
  expect_error([&] { pad_examples({right, wrong}, {4, 5}, {.pads_target = true}, 0); },
               ErrorCode::invalid_argument, {"sample 5", "3", "2"});
  expect_error([&] { pad_examples({right, {at::ones({}), at::ones({})}}, {4, 5}, {}, 0); },
               ErrorCode::invalid_argument, {"sample 5", "no dimension"});
}

// Nothing was kept about the numbers, so they are looked at when a sample is made.
TEST(Tokens, OutsideTheClassesAreRefusedByTheRecord) {
  const auto reader = documents({3, 3, 3});
  for (const char* const stages : {"", "pad"}) {
    SCOPED_TRACE(stages);
    data::PipelineOptions options;
    options.stages = data::parse_stages("data.stages", stages);
    options.fields.is_padded = *stages != '\0';
    options.classes = 102;
    const auto source = data::make_pipeline(reader, options);
    EXPECT_EQ(values(source->get_batch({0}).target[0]), (Numbers{1, 2}));
    expect_error([&] { source->get_batch({0, 1}); }, ErrorCode::invalid_argument,
                 {"made.jsonl, line 2", "the token is 102, outside 0..101 (data.classes=102)"});
    expect_error([&] { source->get_batch({2}); }, ErrorCode::invalid_argument,
                 {"made.jsonl, line 3", "the token is 200"});
  }
  const data::DocumentSource packed(reader, "tokens", {}, 102);
  EXPECT_EQ(values(packed.get({0}).data), (Numbers{0, 1, 2}));
  expect_error([&] { packed.get({1}); }, ErrorCode::invalid_argument,
               {"made.jsonl, line 2", "the token is 102"});
}

TEST(Tokens, MayBeChangedByAFunction) {
  register_map("small tokens", [](Example one, const Draw&) {
    one.data = one.data % 10;
    one.target = one.target % 10;
    return one;
  });
  data::PipelineOptions options;
  options.stages = data::parse_stages("data.stages", "map(small tokens)");
  options.classes = 10;
  const auto source = data::make_pipeline(documents({3, 3, 3}), options);
  EXPECT_EQ(values(source->get_batch({2}).target[0]), (Numbers{1, 2}));
}

// Batches of any number of ranks are as long as the longest of the global batch, and all ranks
// know the targets that count.
TEST(Pad, RanksPadToTheLongestOfTheGlobalBatch) {
  const auto reader = documents();
  data::PipelineOptions options;
  options.stages = data::parse_stages("data.stages", "pad");
  options.fields.is_padded = true;
  options.has_lengths = true;
  const auto source = data::make_pipeline(reader, options);
  LoaderOptions loading{.batch = 5, .seed = 2, .shuffle = true, .threads = 0};
  Loader whole(source, loading);
  std::vector<Loader> parts;
  for (int rank = 0; rank < 3; ++rank) parts.emplace_back(source, loading, rank, 3);
  for (int step = 0; step < 4; ++step) {
    const Batch all = whole.next();
    std::vector<at::Tensor> data, targets;
    for (Loader& part : parts) {
      const Batch share = part.next();
      data.push_back(share.data);
      targets.push_back(share.target);
      EXPECT_EQ(share.global_targets, all.global_targets);
    }
    EXPECT_TRUE(at::equal(at::cat(data), all.data));
    EXPECT_TRUE(at::equal(at::cat(targets), all.target));
    EXPECT_EQ(all.target.ne(kNoTarget).sum().item<int64_t>(), all.global_targets);
  }
}

TEST(ChainedSource, GivesOneSourceBehindTheOther) {
  const ChainedSource chain({numbered(3), numbered(2)});
  ASSERT_EQ(chain.size(), 5);
  EXPECT_EQ(values(chain.get_batch({0, 2, 3, 4}).target), (Numbers{0, 2, 0, 1}));
  std::vector<size_t> left_out;
  EXPECT_EQ(values(chain.get_kept({2, 3}, left_out).target), (Numbers{2, 0}));
  expect_error([&] { chain.get({5}); }, ErrorCode::invalid_argument, {"5 is outside 0..4"});
}

TEST(RenumberedSource, RepeatsSamplesWithRandomNumbersOfTheirOwn) {
  class Seeds : public Source {
   public:
    int64_t size() const override { return 2; }
    Example get(const Draw& draw) const override {
      return {at::scalar_tensor(static_cast<int64_t>(draw.seed >> 1), at::kLong),
              at::scalar_tensor(draw.index, at::kLong)};
    }
  };
  const RenumberedSource twice(std::make_shared<Seeds>(), 4, [](int64_t i) { return i % 2; });
  const Draws draws({0, 1, 2, 3}, 1, 9);
  const Example batch = twice.get_batch(draws);
  EXPECT_EQ(values(batch.target), (Numbers{0, 1, 0, 1}));
  EXPECT_FALSE(at::equal(batch.data.narrow(0, 0, 2), batch.data.narrow(0, 2, 2)));
  EXPECT_EQ(batch.data[2].item<int64_t>(), twice.get(draws.at(2)).data.item<int64_t>());
}

// As one that mixes a batch does, which asks for the sample before it too.
TEST(RenumberedSource, GivesTheNeighbourRandomNumbersOfItsOwn) {
  class Mixing : public Numbered {
   public:
    using Numbered::Numbered;
    bool mixes_batches() const override { return true; }
    Example get_batch(const Draws& draws) const override {
      asked = data::with_neighbour(draws);
      return Numbered::get_batch(draws);
    }
    mutable Draws asked;
  };
  const auto mixing = std::make_shared<Mixing>(2);
  const RenumberedSource twice(mixing, 4, [](int64_t i) { return i % 2; });
  Draws draws({2, 3}, 1, 9);
  for (const std::optional<int64_t> before : {std::optional<int64_t>(1), {}}) {
    draws.before = before;
    twice.get_batch(draws);
    EXPECT_EQ(mixing->asked.indices, (Numbers{1, 0, 1}));
    EXPECT_EQ(mixing->asked.at(0).seed, Draws({before.value_or(3)}, 1, 9).at(0).seed);
    EXPECT_EQ(mixing->asked.at(1).seed, draws.at(0).seed);
    EXPECT_EQ(mixing->asked.at(2).seed, draws.at(1).seed);
  }
}

class ImagesInBlocks : public data::MadeImages {
 public:
  explicit ImagesInBlocks(Numbers blocks) : MadeImages(8, 2, 2), blocks_(std::move(blocks)) {}
  Numbers blocks() const override { return blocks_; }

 private:
  const Numbers blocks_;
};

TEST(ZipReaders, EndABlockWhereOneOfASourceEnds) {
  const auto blocks_with = [](Numbers blocks) {
    const auto images = std::make_shared<ImagesInBlocks>(std::move(blocks));
    return data::zip_readers({{"a", images}, {"b", documents()}})->blocks();
  };
  EXPECT_EQ(blocks_with({3, 5}), (Numbers{3, 5}));
  EXPECT_EQ(blocks_with({4, 4}), (Numbers{3, 1, 4}));
  EXPECT_EQ(blocks_with({8}), (Numbers{3, 5}));
}

TEST(ZipReaders, PutsFieldsBesideEachOther) {
  const auto images = std::make_shared<data::MadeImages>(8, 2, 2);
  const auto zipped = data::zip_readers({{"a", images}, {"b", documents()}});
  records::Record record;
  zipped->read(3, record);
  EXPECT_EQ(record.fields.size(), 3u);
  EXPECT_EQ(record.at("tokens").shape[0], 5);
  EXPECT_EQ(zipped->length(3), 5);
  EXPECT_THAT(zipped->place(3), testing::HasSubstr("record 3 and made.jsonl, line 4"));
  EXPECT_EQ(zipped->blocks(), (Numbers{3, 5}));
  expect_error([&] { data::zip_readers({{"a", images}, {"b", documents({1, 2, 3, 4})}}); },
               ErrorCode::invalid_argument, {"source b has 4 records, and source a has 8"});
  expect_error([&] { data::zip_readers({{"a", images}, {"b", images}}); },
               ErrorCode::invalid_argument, {"source b has the field image"});
}

}  // namespace
}  // namespace trireme::sample_plan_test
