// Records that become samples by a function of the user's own: the stage decode_record.
#include <ATen/ATen.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <trireme/data/data_kinds.h>
#include <trireme/data/kinds/record_set.h>
#include <trireme/data/pipeline/functions.h>
#include <trireme/data/pipeline/record_pipelines.h>
#include <trireme/data/source_makers.h>
#include <algorithm>
#include <atomic>
#include <numeric>
#include <stdexcept>

#include "../records/lmdb_files.h"
#include "data_files.h"

namespace trireme::data::record_step_test {
namespace {

constexpr int kRecords = 24, kPixels = 12;

std::atomic<int> calls{0};

int pixel_of(int record, int place) { return (12 * record + 7 * place) % 256; }

std::span<const std::byte> value_of(const records::Record& record) {
  const auto value = record.at("value").bytes;
  if (value.size() != 1 + kPixels)
    throw Error(ErrorCode::corrupt, "test", "the value is cut", "a whole value");
  return value;
}

at::Tensor label_in(std::span<const std::byte> value) {
  return at::full({}, std::to_integer<int64_t>(value[0]), at::kLong);
}

Example labelled(const records::Record& record, int64_t) {
  const auto value = value_of(record);
  ++calls;
  at::Tensor data = at::empty({kPixels});
  for (size_t i = 0; i < kPixels; ++i)
    data.mutable_data_ptr<float>()[i] = std::to_integer<uint8_t>(value[i + 1]);
  return {data, label_in(value)};
}

void register_functions() {
  static const bool is_done = [] {
    register_decode("labelled", labelled, "1");
    register_decode("no version", labelled);
    register_decode("view", [](const records::Record& record, int64_t) -> Example {
      const auto value = value_of(record);
      auto* const pixels = const_cast<std::byte*>(value.data() + 1);
      return {at::from_blob(pixels, {kPixels}, at::kByte), label_in(value)};
    });
    register_map("one more", [](Example one, const Draw&) {
      one.data.add_(1);
      return one;
    });
    register_decode("noise", [](const records::Record& record, int64_t index) -> Example {
      return {at::rand({2}) + index, label_in(value_of(record))};
    });
    // The data has one number more than the label says.
    register_decode("lengths", [](const records::Record& record, int64_t) -> Example {
      const at::Tensor label = label_in(value_of(record));
      const at::Tensor data = at::ones({label.item<int64_t>() + 1});
      return {data, label, {{"mask", data.to(at::kBool)}}};
    });
    register_decode("throws", [](const records::Record&, int64_t) -> Example {
      throw std::runtime_error("no such letter");
    });
    register_decode("no target", [](const records::Record&, int64_t) -> Example {
      return {at::ones({kPixels}), {}};
    });
    return true;
  }();
  EXPECT_TRUE(is_done);
}

// An LMDB whose values are a label, in one byte, and the pixels behind it.
class Values {
 public:
  explicit Values(int cut = -1) {
    register_functions();
    std::vector<std::pair<std::string, std::string>> all;
    for (int i = 0; i < kRecords; ++i) {
      std::string value(1, static_cast<char>(i % 3));
      for (int place = 0; place < kPixels; ++place) value += static_cast<char>(pixel_of(i, place));
      if (i == cut) value.resize(5);
      all.emplace_back(fmt::format("{:04}", i), value);
    }
    records::write_lmdb(folder_.path() / "db", all);
  }

  DataOptions options(const std::string& stages) const {
    DataOptions options;
    options.name = "lmdb";
    options.path = folder_.path() / "db";
    options.stages = stages;
    options.classes = 3;
    options.test_fraction = 0;
    options.cache_dir = folder_.path() / "cache";
    return options;
  }
  std::shared_ptr<const Source> source(const std::string& stages) const {
    return record_pipelines(read_record_set(options(stages))).train;
  }
  const Folder& folder() const { return folder_; }

 private:
  Folder folder_;
};

Example all_of(const Source& source, std::vector<size_t>& left_out) {
  std::vector<int64_t> all(static_cast<size_t>(source.size()));
  std::iota(all.begin(), all.end(), 0);
  return source.get_kept(Draws(all), left_out);
}

Example all_of(const Source& source) {
  std::vector<size_t> left_out;
  const Example rows = all_of(source, left_out);
  EXPECT_TRUE(left_out.empty());
  return rows;
}

// Training and evaluation.
TEST(DecodedRecords, AreTheSamplesOfAZipOfTheirParts) {
  const Values values;
  DataOptions options = values.options("decode_record(labelled, 12)");
  options.test_fraction = 0.25;
  const Dataset data = find_kind("lmdb")->read(options);
  EXPECT_EQ(data.input.shape, std::vector<int64_t>{kPixels});
  EXPECT_EQ(data.input.classes, 3);
  EXPECT_FALSE(data.has_values);

  std::string pixels, labels = "label\n";
  for (int place = 0; place < kPixels; ++place) pixels += fmt::format(",p{}", place);
  pixels = pixels.substr(1) + "\n";
  for (int i = 0; i < kRecords; ++i) {
    for (int place = 0; place < kPixels; ++place)
      pixels += fmt::format("{}{}", place == 0 ? "" : ",", pixel_of(i, place));
    pixels += "\n";
    labels += fmt::format("{}\n", i % 3);
  }
  DataOptions zip = options;
  zip.name = "zip";
  zip.path = zip.stages = "";
  zip.sources =
      fmt::format(R"([{{"name": "csv", "path": "{}"}}, {{"name": "csv", "path": "{}"}}])",
                  values.folder().write("pixels.csv", pixels).string(),
                  values.folder().write("labels.csv", labels).string());
  const Sources made = make_sources("lmdb", data);
  const Sources zipped = make_sources("zip", find_kind("zip")->read(zip));
  ASSERT_EQ(made.train->size(), 18);
  ASSERT_EQ(made.test->size(), 6);
  for (const auto& [one, other] :
       {std::pair{made.train, zipped.train}, std::pair{made.test, zipped.test}}) {
    const Example rows = all_of(*one), wanted = all_of(*other);
    EXPECT_TRUE(rows.data.equal(wanted.data));
    EXPECT_TRUE(rows.target.equal(wanted.target));
  }
  EXPECT_TRUE(made.train->get(Draw(5)).data.equal(all_of(*made.train).data[5]));
  EXPECT_EQ(made.train->stage_use().at(1).name, "decode_record(labelled)");
}

TEST(DecodedRecords, MayBeViewsOfTheirFields) {
  const Values values;
  const at::Tensor wanted = all_of(*values.source("decode_record(labelled, 12)")).data;
  const Example rows = all_of(*values.source("decode_record(view, 12)"));
  EXPECT_EQ(rows.data.scalar_type(), at::kByte);
  EXPECT_TRUE(rows.data.to(at::kFloat).equal(wanted));
  // Stages behind it may change them.
  const Example more = all_of(*values.source("decode_record(view, 12) | map(one more)"));
  EXPECT_TRUE(more.data.equal(rows.data + 1));
}

TEST(DecodedRecords, AreTheSameInEachEpoch) {
  const Values values;
  const auto source = values.source("decode_record(noise, 2)");
  const Example first = source->get({3, 0, 7});
  EXPECT_TRUE(first.data.equal(source->get({3, 5, 8}).data));
  EXPECT_FALSE(first.data.equal(source->get({4, 0, 7}).data - 1));
}

TEST(DecodedRecords, AreKeptByACache) {
  const Values values;
  const Example plain = all_of(*values.source("decode_record(labelled, 12) | map(one more)"));
  for (const char* const place : {"memory", "disk"}) {
    const auto source = values.source(
        fmt::format("decode_record(labelled, 12) | cache({}) | map(one more)", place));
    all_of(*source);
    calls = 0;
    const Example kept = all_of(*source);
    EXPECT_EQ(calls, 0) << place;
    EXPECT_TRUE(kept.data.equal(plain.data)) << place;
    EXPECT_TRUE(kept.target.equal(plain.target)) << place;
  }
  expect_error([&] { values.source("decode_record(no version, 12) | cache(disk)"); },
               ErrorCode::invalid_argument, {"has no version", "register_decode()"});
}

TEST(DecodedRecords, MayDifferInLengthInFrontOfPad) {
  const Values values;
  const auto source = values.source("decode_record(lengths, 3) | pad");
  const Example rows = source->get_batch({0, 1, 4});  // Labels 0, 1 and 1.
  EXPECT_EQ(rows.data.sizes(), at::IntArrayRef({3, 2}));
  EXPECT_EQ(rows.target.sizes(), at::IntArrayRef({3}));
  EXPECT_TRUE(rows.more.at("lengths").equal(at::tensor({1, 2, 2}, at::kLong)));
  EXPECT_TRUE(rows.more.at("mask").equal(rows.data.to(at::kBool)));
  EXPECT_TRUE(read_record_set(values.options("decode_record(lengths, 3) | pad")).input.is_ragged);
  expect_error([&] { values.source("decode_record(lengths, 2) | pad")->get(Draw(2)); },
               ErrorCode::invalid_argument, {"[3]", "2 at most"});
}

TEST(DecodedRecords, ThatAreWrongAreNamedWithStageAndFunction) {
  const Values values(7);
  const auto named = [&](const std::string& stages, int64_t record, ErrorCode code,
                         std::vector<std::string> parts) {
    parts.emplace_back("data.mdb, record " + std::to_string(record));
    parts.push_back(stages.substr(0, stages.find(',')) + "): ");
    const auto source = values.source(stages);
    expect_error([&] { source->get_batch({0, record, 2}); }, code, parts);
  };
  named("decode_record(labelled, 12)", 7, ErrorCode::corrupt,
        {"the value is cut", "a whole value, or data.on_bad_record=skip"});
  const ErrorCode wrong = ErrorCode::invalid_argument;
  named("decode_record(throws, 12)", 0, wrong, {"the function threw: no such letter"});
  named("decode_record(no target, 12)", 0, wrong, {"gave no target"});
  named("decode_record(labelled, 3:4)", 0, wrong, {"[12]", "the stage says 3:4", "shape=12"});
  DataOptions options = values.options("decode_record(labelled, 12)");
  options.classes = 2;
  const auto source = record_pipelines(read_record_set(options)).train;
  expect_error([&] { source->get(Draw(2)); }, wrong,
               {"data.mdb, record 2", "the target is 2, outside 0..1"});
}

TEST(DecodedRecords, ThatAreDamagedAreLeftOut) {
  const Values values(7);
  for (const std::string stages :
       {"decode_record(labelled, 12)", "decode_record(labelled, 12) | cache"}) {
    DataOptions options = values.options(stages);
    options.on_bad_record = "skip";
    const auto source = record_pipelines(read_record_set(options)).train;
    for (int time = 0; time < 2; ++time) {
      std::vector<size_t> left_out;
      EXPECT_EQ(all_of(*source, left_out).data.size(0), kRecords - 1);
      EXPECT_EQ(left_out, std::vector<size_t>{7});
      EXPECT_EQ(std::ssize(source->bad_records()), 1);
    }
  }
}

TEST(DecodedRecords, HaveTheFieldsThatAreNamed) {
  const Folder folder;
  register_functions();
  DataOptions options;
  options.name = "jsonl";
  options.path =
      folder.write("rows.jsonl", "{\"value\": \"a\"}\n{\"other\": 1}\n{\"value\": \"c\"}\n")
          .string();
  options.stages = "decode_record(throws, 1)";
  options.inputs = "value";
  options.classes = 1;
  options.test_fraction = 0;
  options.on_bad_record = "skip";
  const auto source = record_pipelines(read_record_set(options)).train;
  std::vector<size_t> left_out;
  expect_error([&] { source->get(Draw(0)); }, ErrorCode::invalid_argument, {"no such letter"});
  // The function is not called for a record without the field.
  EXPECT_THROW(source->get_kept({1}, left_out), Error);
  EXPECT_EQ(std::ssize(source->bad_records()), 1);
}

TEST(DecodedRecords, AreCheckedBeforeTheRun) {
  const Values values;
  const auto refused = [&](auto change, const std::vector<std::string>& parts) {
    DataOptions options = values.options("decode_record(labelled, 12)");
    change(options);
    expect_error([&] { record_pipelines(read_record_set(options)); }, ErrorCode::invalid_argument,
                 parts);
  };
  const auto refused_stages = [&](const std::string& stages, const std::string& part) {
    refused([&](DataOptions& options) { options.stages = stages; }, {part});
  };
  refused([](DataOptions& options) { options.target = "key"; }, {"data.target is key"});
  refused([](DataOptions& options) { options.inputs = "values"; }, {"data.inputs", "values"});
  refused([](DataOptions& options) { options.classes = -1; }, {"data.classes is auto"});
  refused([](DataOptions& options) { options.test_stages = "pad"; },
          {"data.test_stages have no decode_record"});
  refused_stages("decode_record(absent, 12)", "stage decode_record 'absent' is not known");
  refused_stages("map(one more) | decode_record(labelled, 12)", "map takes tensors");
  refused_stages("decode | decode_record(labelled, 12)", "as the first stage");
  refused_stages("decode_record(labelled, 12) | bucket", "bucket needs the length");
}

}  // namespace
}  // namespace trireme::data::record_step_test
