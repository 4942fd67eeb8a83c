#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include <trireme/data/data_kinds.h>
#include <trireme/data/loader.h>
#include <trireme/data/source_makers.h>
#include <array>
#include <set>

#include "data_files.h"
#include "numbered.h"

namespace trireme::mixture_stages_test {
namespace {

using data::DataOptions;
using data::Dataset;
using data::expect_error;

// Two sources of documents and two of images' numbers, which differ in size.
class MixtureStages : public testing::Test {
 protected:
  void SetUp() override {
    for (int i = 0; i < 40; ++i) {
      const int length = 2 + i * 7 % 23;
      std::string line = "{\"tokens\": [";
      for (int j = 0; j < length; ++j) line += (j > 0 ? ", " : "") + std::to_string((i + j) % 50);
      (i % 3 == 0 ? documents_[0] : documents_[1]) += line + "]}\n";
    }
    for (int i = 0; i < 30; ++i)
      rows_[static_cast<size_t>(i % 2)] += std::to_string(i) + "," + std::to_string(2 * i) + "," +
                                           std::to_string(i % 2 == 0 ? i / 2 % 4 : i % 3) + "\n";
    for (const size_t part : {size_t{0}, size_t{1}}) {
      document_paths_[part] =
          folder_.write("documents" + std::to_string(part) + ".jsonl", documents_[part]).string();
      row_paths_[part] =
          folder_.write("rows" + std::to_string(part) + ".csv", "x,y,label\n" + rows_[part])
              .string();
    }
  }

  static DataOptions mixture_of(const std::string& format, const std::array<std::string, 2>& paths,
                                const std::string& stages, const std::string& more = "") {
    DataOptions options;
    options.name = "mixture";
    options.sources = "[{\"name\": \"" + format + "\", \"path\": \"" + paths[0] +
                      "\", \"weight\": \"2\", \"as\": \"a\"" + more + "}, {\"name\": \"" + format +
                      "\", \"path\": \"" + paths[1] + "\", \"as\": \"b\"}]";
    options.stages = stages;
    options.test_fraction = 0.2;
    return options;
  }
  DataOptions documents(const std::string& stages, const std::string& more = "") const {
    return mixture_of("jsonl", document_paths_, stages, more);
  }
  DataOptions rows(const std::string& stages, const std::string& more = "") const {
    return mixture_of("csv", row_paths_, stages, more);
  }
  static Dataset read(const DataOptions& options) {
    return data::find_kind("mixture")->read(options);
  }

  data::Folder folder_;
  std::array<std::string, 2> documents_, rows_, document_paths_, row_paths_;
};

LoaderOptions options_for(const Dataset& data, int threads = 0) {
  LoaderOptions options;
  options.batch = 6;
  options.seed = 5;
  options.threads = threads;
  options.shuffle.mixture = data.mixture;
  if (data.by_length) {
    plan::LengthBatches lengths = *data.by_length;
    if (lengths.batch == 0) lengths.batch = options.batch;
    options.shuffle.by_length = std::make_shared<const plan::LengthBatches>(lengths);
  }
  return options;
}

// Each step of two epochs, on one rank and on three with threads, has the same bits.
void expect_same_for_any_ranks(const Dataset& data) {
  const auto source = data::make_sources("mixture", data).train;
  Loader whole(source, options_for(data));
  std::vector<Loader> parts;
  for (int rank = 0; rank < 3; ++rank) parts.emplace_back(source, options_for(data, 2), rank, 3);
  for (int64_t step = 0; step < 2 * whole.batches_per_epoch(); ++step) {
    const Batch batch = whole.next();
    std::vector<at::Tensor> rows, targets;
    for (Loader& part : parts) {
      const Batch share = part.next();
      EXPECT_EQ(share.global_targets, batch.global_targets);
      if (share.size() == 0) continue;
      rows.push_back(share.data);
      targets.push_back(share.target);
    }
    EXPECT_TRUE(at::equal(at::cat(rows), batch.data));
    EXPECT_TRUE(at::equal(at::cat(targets), batch.target));
  }
}

TEST_F(MixtureStages, MixSamplesOfAllSources) {
  const Dataset data = read(rows("mixup(0.4)"));
  EXPECT_EQ(data.input.classes, 4);
  EXPECT_FALSE(data.has_values);
  expect_same_for_any_ranks(data);
  const auto sources = data::make_sources("mixture", data);
  Loader loader(sources.train, options_for(data));
  bool has_both = false;
  for (int step = 0; step < 4; ++step) {
    const Batch batch = loader.next();
    ASSERT_EQ(batch.target.sizes(), at::IntArrayRef({6, 4}));
    EXPECT_TRUE(at::allclose(batch.target.sum(1), at::ones({6})));
    has_both |= (batch.target > 0).sum(1).max().item<int64_t>() == 2;
  }
  EXPECT_TRUE(has_both);
  // An evaluation judges each sample.
  EXPECT_EQ(sources.test->get(0).target.dim(), 0);
}

TEST_F(MixtureStages, PadTheSamplesOfABatchTogether) {
  const Dataset data = read(documents("pad(4)"));
  EXPECT_TRUE(data.input.is_ragged);
  EXPECT_EQ(data.input.shape.at(0) % 4, 0);
  expect_same_for_any_ranks(data);
  const auto sources = data::make_sources("mixture", data);
  for (const auto& source : {sources.train, sources.test}) {
    LoaderOptions options = options_for(data);
    if (source == sources.test) options.shuffle = plan::OrderOptions(false);
    Loader loader(source, options);
    for (int64_t step = 0; step < loader.batches_per_epoch(); ++step) {
      const Batch batch = loader.next();
      const at::Tensor lengths = batch.more.at("lengths");
      const int64_t longest = lengths.max().item<int64_t>();
      EXPECT_EQ(batch.data.size(1), (longest + 3) / 4 * 4);
      EXPECT_EQ(batch.global_targets, lengths.sum().item<int64_t>());
      for (int64_t row = 0; row < batch.size(); ++row) {
        const int64_t length = lengths[row].item<int64_t>();
        EXPECT_TRUE((batch.target[row].slice(0, length) == kNoTarget).all().item<bool>());
        EXPECT_TRUE((batch.target[row].slice(0, 0, length) >= 0).all().item<bool>());
      }
    }
  }
}

TEST_F(MixtureStages, BucketTheSamplesOfAllSources) {
  const Dataset data = read(documents("bucket(window=2) | pad"));
  expect_same_for_any_ranks(data);
  Loader loader(data::make_sources("mixture", data).train, options_for(data));
  int from_both = 0;
  for (int window = 0; window < 2; ++window) {
    std::vector<std::pair<int64_t, int64_t>> ranges;
    for (int step = 0; step < 2; ++step) {
      const Batch batch = loader.next();
      const at::Tensor lengths = batch.more.at("lengths");
      ranges.emplace_back(lengths.min().item<int64_t>(), lengths.max().item<int64_t>());
      std::set<size_t> sources;
      for (const int64_t number : batch.indices)
        sources.insert(data.mixture->sample_of(batch.position.epoch, number).source);
      from_both += sources.size() == 2;
    }
    std::ranges::sort(ranges);
    EXPECT_LE(ranges[0].second, ranges[1].first);
  }
  EXPECT_GT(from_both, 0);
}

TEST_F(MixtureStages, OfOneSourceAreRefused) {
  for (const std::string stage : {"mixup", "cutmix", "pad", "bucket"})
    expect_error([&] { read(rows("", ", \"stages\": \"" + stage + "\"")); },
                 ErrorCode::invalid_argument,
                 {"source a", "the stage " + stage, "samples of all sources", "data.stages"});
}

TEST_F(MixtureStages, AreRefusedWhereTheyCannotWork) {
  expect_error([&] { read(documents("mixup")); }, ErrorCode::invalid_argument,
               {"mixup", "tokens"});
  expect_error([&] { read(documents("mixup | pad")); }, ErrorCode::invalid_argument,
               {"pad", "mixup"});
  expect_error([&] { read(documents("pack(24) | pad")); }, ErrorCode::invalid_argument,
               {"source a", "pad", "pack"});
  expect_error([&] { read(rows("bucket")); }, ErrorCode::invalid_argument,
               {"source a", "bucket", "length"});
  DataOptions tested = rows("");
  tested.test_stages = "mixup";
  expect_error([&] { read(tested); }, ErrorCode::invalid_argument, {"data.test_stages", "mixup"});
  DataOptions digits = documents("pad");
  digits.sources.insert(1, "{\"name\": \"digits\"}, ");
  expect_error([&] { read(digits); }, ErrorCode::invalid_argument, {"source 1", "pad", "digits"});
}

}  // namespace
}  // namespace trireme::mixture_stages_test
