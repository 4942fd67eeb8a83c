// data.name: text, read as a whole and as records.
#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include <trireme/data/data_kinds.h>
#include <trireme/data/kinds/record_set.h>
#include <trireme/data/kinds/text_set.h>
#include <trireme/data/pipeline/functions.h>
#include <trireme/data/service/facts.h>
#include <trireme/data/service/served_parts.h>
#include <trireme/data/source_makers.h>
#include <any>
#include <numeric>

#include "data_files.h"

namespace trireme::data {
namespace text_records_tests {

using testing::ElementsAre;

// 400 characters, some of them of two bytes.
std::string small_text() {
  std::string text;
  for (int i = 0; i < 400; ++i)
    text += i % 7 == 3 ? std::string("\xC3\xA4") : std::string(1, "ab\nc de"[i * i % 7]);
  return text;
}

struct SmallText {
  Folder folder;
  std::string path = folder.write("a.txt", small_text()).string();

  DataOptions options(const std::string& tokens = "characters") const {
    DataOptions made;
    made.name = "text";
    made.path = path;
    made.tokens = tokens;
    made.block = 8;
    made.test_fraction = 0.25;
    return made;
  }
};

bool has_records(const Dataset& data) { return std::any_cast<RecordParts>(&data.samples); }

Example all_of(const std::shared_ptr<const Source>& source) {
  std::vector<int64_t> numbers(static_cast<size_t>(source->size()));
  std::iota(numbers.begin(), numbers.end(), 0);
  return source->get_batch(Draws(numbers, 1, 7));
}

// Reads the text in both ways and compares all that a run sees.
void expect_the_same(const Dataset& table, const Dataset& records) {
  EXPECT_FALSE(has_records(table));
  EXPECT_TRUE(has_records(records));
  EXPECT_EQ(records.content, table.content);
  EXPECT_EQ(records.train_samples, table.train_samples);
  EXPECT_EQ(records.test_samples, table.test_samples);
  EXPECT_EQ(records.split.train.describe(), table.split.train.describe());
  EXPECT_EQ(records.split.test.describe(), table.split.test.describe());
  EXPECT_EQ(records.input.shape, table.input.shape);
  EXPECT_EQ(records.input.classes, table.input.classes);
  EXPECT_EQ(records.class_names, table.class_names);
  EXPECT_TRUE(records.has_tokens);
  EXPECT_FALSE(records.has_values);
  EXPECT_TRUE(records.train_blocks.empty());
  const Sources of_table = make_sources("text", table), of_records = make_sources("text", records);
  for (const auto part : {&Sources::train, &Sources::test}) {
    const Example wanted = all_of(of_table.*part), found = all_of(of_records.*part);
    EXPECT_TRUE(at::equal(found.data, wanted.data));
    EXPECT_TRUE(at::equal(found.target, wanted.target));
    EXPECT_EQ(found.data.scalar_type(), wanted.data.scalar_type());
  }
}

TEST(TextAsRecords, HasTheSamplesAndTheContentOfTheWholeText) {
  const SmallText text;
  for (const char* const tokens : {"characters", "bytes"}) {
    SCOPED_TRACE(tokens);
    const DataOptions plain = text.options(tokens);
    const Dataset table = read_text_set(plain);
    EXPECT_GT(table.test_samples, 0);
    DataOptions skipping = plain;
    skipping.on_bad_record = "skip";
    expect_the_same(table, read_text_set(skipping));
    DataOptions named = plain;
    named.inputs = "tokens";
    named.target = "tokens";
    expect_the_same(table, read_text_set(named));
  }
}

TEST(TextAsRecords, IsReadFromPackedFilesInBothWays) {
  const SmallText text;
  for (const char* const tokens : {"characters", "bytes"})
    for (const std::string& packed : {gzipped(small_text()), zstd_packed(small_text())}) {
      DataOptions options = text.options(tokens);
      const std::string content = read_text_set(options).content;
      options.path = text.folder.write("packed", packed).string();
      const Dataset table = read_text_set(options);
      EXPECT_EQ(table.content, content);
      options.on_bad_record = "skip";
      expect_the_same(table, read_text_set(options));
    }
}

TEST(TextAsRecords, OfABombAreRefusedInBothWays) {
  const SmallText text;
  DataOptions options = text.options("bytes");
  options.block = 1 << 20;
  options.path = text.folder.write("bomb", zstd_packed(std::string(20 << 20, 'x'))).string();
  for (const char* const bad : {"stop", "skip"}) {
    options.on_bad_record = bad;
    options.max_ratio = 300;
    expect_error([&] { read_text_set(options); }, ErrorCode::corrupt,
                 {"bomb", "over 300 times as many", "data.max_ratio"});
    options.max_ratio = 100'000;
    EXPECT_EQ(read_text_set(options).input.classes, 256);
  }
}

TEST(TextAsRecords, IsReadWhereAKeyNeedsIt) {
  const SmallText text;
  EXPECT_FALSE(has_records(read_text_set(text.options())));
  for (const auto& change :
       std::vector<void (*)(DataOptions&)>{[](DataOptions& o) { o.stages = "take(4)"; },
                                           [](DataOptions& o) { o.test_stages = "take(4)"; },
                                           [](DataOptions& o) { o.inputs = "tokens"; },
                                           [](DataOptions& o) { o.target = "tokens"; },
                                           [](DataOptions& o) { o.on_bad_record = "skip"; },
                                           [](DataOptions& o) { o.service = "host"; }}) {
    DataOptions options = text.options();
    change(options);
    check(options);
    EXPECT_TRUE(has_records(read_text_set(options)));
  }
}

TEST(TextAsRecords, GoesThroughStages) {
  const SmallText text;
  register_map("next token", [](Example one, const Draw&) {
    one.data = one.data + 1;
    return one;
  });
  register_filter("even first token",
                  [](const Example& one) { return one.data[0].item<int64_t>() % 2 == 0; });
  const Dataset plain = read_text_set(text.options());
  DataOptions options = text.options();
  options.stages = "map(next token) | filter(even first token)";
  options.test_stages = "map(next token)";
  check(options);
  const Dataset data = read_text_set(options);
  EXPECT_EQ(data.content, plain.content);
  EXPECT_EQ(data.train_samples, plain.train_samples);
  EXPECT_EQ(data.test_samples, plain.test_samples);
  const Sources sources = make_sources("text", data), whole = make_sources("text", plain);
  EXPECT_TRUE(at::equal(all_of(sources.test).data, all_of(whole.test).data + 1));
  std::vector<size_t> left_out;
  const Draws ten({0, 1, 2, 3, 4, 5, 6, 7, 8, 9});
  const Example kept = sources.train->get_kept(ten, left_out);
  EXPECT_EQ(kept.data.size(0) + std::ssize(left_out), 10);
  EXPECT_TRUE(at::equal(kept.data.select(1, 0) % 2, at::zeros({kept.data.size(0)}, at::kLong)));
  EXPECT_EQ(kept.data.scalar_type(), at::kLong);
  options.stages = "take(10) | repeat(3)";
  EXPECT_EQ(read_text_set(options).train_samples, 30);
}

TEST(TextAsRecords, RefusesWhatATextDoesNotHave) {
  const SmallText text;
  DataOptions options = text.options();
  options.inputs = "words";
  expect_error([&] { read_text_set(options); }, ErrorCode::invalid_argument,
               {"data.inputs", "\"words\"", "tokens"});
  for (const char* const stage : {"pack(16)", "pad", "bucket"}) {
    options = text.options();
    options.stages = stage;
    expect_error([&] { check(options); }, ErrorCode::invalid_argument,
                 {"data.stages", "data.block", "data.name=tokens"});
  }
  options = text.options();
  options.stages = "mixup";
  expect_error([&] { read_text_set(options); }, ErrorCode::invalid_argument,
               {"mixup mixes numbers", "the samples are tokens"});
  options = text.options();
  options.stages = "take(3)";
  options.block = 4000;
  expect_error([&] { read_text_set(options); }, ErrorCode::invalid_argument,
               {"a.txt has 400 tokens", "data.block=399"});
  options.path = "";
  expect_error([&] { check(options); }, ErrorCode::invalid_argument, {"data.path=FILE"});
}

TEST(TextAsRecords, HasAnIndexAndFactsForAService) {
  const SmallText text;
  const std::vector<PartFiles> files = files_of_parts(text.options("bytes"));
  ASSERT_EQ(files.size(), 1U);
  EXPECT_EQ(files[0].name, "train");
  const auto reader = records::open_records(files[0].open);
  EXPECT_EQ(reader->fields()[0].shape, std::vector<int64_t>{9});
  EXPECT_EQ(reader->largest("tokens"), 255);
  DataOptions options = text.options();
  options.service = "host";
  const Dataset data = read_text_set(options);
  const std::vector<PartFacts> facts = facts_of_parts(data);
  ASSERT_EQ(facts.size(), 2U);
  EXPECT_EQ(facts[0].samples, data.train_samples);
  EXPECT_TRUE(facts[0].is_fixed);
  EXPECT_NE(facts[0].digest, facts[1].digest);
  EXPECT_EQ(parts_to_serve(data).size(), 2U);
}

TEST(TextAsRecords, StandsInMixturesAndBesideOtherRecords) {
  const SmallText text;
  const std::string other = text.folder.write("b.txt", small_text().substr(0, 200)).string();
  DataOptions mixture = text.options("bytes");
  mixture.name = "mixture";
  mixture.path = "";
  const std::string sources = R"([{"name": "text", "path": ")" + text.path +
                              R"("}, {"name": "text", "path": ")" + other + R"("}])";
  mixture.sources = sources;
  check(mixture);
  const Dataset plain = find_kind("mixture")->read(mixture);
  mixture.stages = "take(5)";
  check(mixture);
  const Dataset taken = find_kind("mixture")->read(mixture);
  EXPECT_EQ(taken.train_samples, 10);
  EXPECT_EQ(taken.test_samples, plain.test_samples);
  const Sources all = make_sources("mixture", plain), few = make_sources("mixture", taken);
  EXPECT_TRUE(at::equal(few.train->get(0).data, all.train->get(0).data));
  EXPECT_TRUE(at::equal(all_of(few.test).target, all_of(all.test).target));
  mixture.stages = "pad";
  expect_error([&] { check(mixture); }, ErrorCode::invalid_argument,
               {"source 1", "pad", "data.block"});

  std::string weights = "weight\n";
  const int64_t records = records::open_records(files_of_parts(text.options())[0].open)->size();
  for (int64_t i = 0; i < records; ++i) weights += std::to_string(i % 3) + "\n";
  DataOptions zip;
  zip.name = "zip";
  zip.inputs = "tokens";
  zip.target = "weight";
  zip.test_fraction = 0;
  zip.sources = R"([{"name": "text", "block": 8, "path": ")" + text.path +
                R"("}, {"name": "csv", "path": ")" +
                text.folder.write("weights.csv", weights).string() + R"("}])";
  check(zip);
  const Dataset zipped = find_kind("zip")->read(zip);
  EXPECT_EQ(zipped.train_samples, records);
  EXPECT_THAT(zipped.input.shape, ElementsAre(9));
  EXPECT_EQ(make_sources("zip", zipped).train->get(7).target.item<int64_t>(), 1);
}

}  // namespace text_records_tests
}  // namespace trireme::data
