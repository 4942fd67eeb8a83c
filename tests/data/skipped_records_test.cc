// Records that the index of the files knows to be damaged, in a training that skips them.
#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>

#include <trireme/data/kinds/record_set.h>
#include <trireme/data/packed_source.h>
#include <trireme/data/pipeline/document_source.h>
#include <trireme/data/pipeline/record_pipelines.h>

#include "../base/expect_error.h"
#include "data_files.h"
#include "made_documents.h"

namespace trireme::data {
namespace skipped_records_tests {

const std::string kRows = "x,z,label\n1,2,0\n3,4\nbad,6,1\n7,,1\n9,10,cat\n11,12,2\n";

DataOptions csv_of(const Folder& folder, const std::string& rows = kRows) {
  DataOptions options;
  options.name = "csv";
  options.path = folder.write("rows.csv", rows).string();
  options.test_fraction = 0;
  options.on_bad_record = "skip";
  return options;
}

// The samples of an epoch that are kept.
Example kept_of(const Dataset& data, std::vector<size_t>& left_out) {
  std::vector<int64_t> all(static_cast<size_t>(data.train_samples));
  for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<int64_t>(i);
  const auto source = record_pipelines(data).train;
  const Example batch = source->get_kept(Draws(all), left_out);
  EXPECT_EQ(std::ssize(source->bad_records()), std::ssize(left_out));
  return batch;
}

TEST(SkippedRecords, KeepTheirPlacesEmpty) {
  const Folder folder;
  const Dataset data = read_record_set(csv_of(folder));
  EXPECT_EQ(data.train_samples, 6);
  EXPECT_EQ(data.input.classes, 3);
  std::vector<size_t> left_out;
  const Example batch = kept_of(data, left_out);
  EXPECT_EQ(left_out, (std::vector<size_t>{1, 2, 3, 4}));
  EXPECT_TRUE(batch.data.equal(at::tensor({1.0F, 2.0F, 11.0F, 12.0F}).view({2, 2})));
  EXPECT_TRUE(batch.target.equal(at::tensor({0, 2}, at::kLong)));
}

TEST(SkippedRecords, AreThoseWithoutWhatTheSamplesNeed) {
  const Folder folder;
  DataOptions options = csv_of(folder);
  options.inputs = "x";
  options.target = "label";
  std::vector<size_t> left_out;
  const Example batch = kept_of(read_record_set(options), left_out);
  EXPECT_EQ(left_out, (std::vector<size_t>{1, 2, 4}));
  EXPECT_TRUE(batch.data.equal(at::tensor({1.0F, 7.0F, 11.0F}).view({3, 1})));
}

TEST(SkippedRecords, MayLackAValueThatNobodyNeeds) {
  const Folder folder;
  DataOptions options = csv_of(folder, "x,z,label\n1,2,0\n3,,1\n,6,1\n");
  options.inputs = "x";
  options.target = "label";
  std::vector<size_t> left_out;
  kept_of(read_record_set(options), left_out);
  EXPECT_EQ(left_out, (std::vector<size_t>{2}));
}

TEST(SkippedRecords, AreThoseWithoutAListThatMostLinesHave) {
  const Folder folder;
  DataOptions options = csv_of(folder);
  options.name = "jsonl";
  options.path = folder
                     .write("rows.jsonl",
                            "{\"note\": \"a longer text\"}\n{\"tokens\": [1, 2, 3]}\n"
                            "{\"tokens\": [4, 5], \"note\": \"b\"}\n")
                     .string();
  options.stages = "pad";
  const Dataset data = read_record_set(options);
  EXPECT_EQ(data.train_samples, 3);
  std::vector<size_t> left_out;
  const Example batch = kept_of(data, left_out);
  EXPECT_EQ(left_out, std::vector<size_t>{0});
  EXPECT_TRUE(batch.data.equal(at::tensor({1, 2, 4, 0}, at::kLong).view({2, 2})));
  const auto source = record_pipelines(data).train;
  EXPECT_EQ(source->size_of({0, 0}).value().targets, 0);
  EXPECT_EQ(source->size_of({1, 0}).value().targets, 2);
  // Without the key such a list is no field, as before.
  options.on_bad_record = "stop";
  EXPECT_THROW(read_record_set(options), Error);
}

// They were no fields before, and other members are enough for a sample.
TEST(SkippedRecords, AreNotThoseWithoutAListThatNobodyNames) {
  const Folder folder;
  DataOptions options = csv_of(folder);
  options.name = "jsonl";
  std::string lines = "{\"x\": 1.5, \"tokens\": [1, 2], \"y\": 0, \"note\": \"a\"}\n";
  lines += "{\"x\": 2.5, \"tokens\": [1, 2, 3], \"y\": 1}\n{\"x\": 3.5, \"y\": 1}\n";
  options.path = folder.write("rows.jsonl", lines).string();
  std::vector<size_t> left_out;
  const Example batch = kept_of(read_record_set(options), left_out);
  EXPECT_TRUE(left_out.empty());
  EXPECT_TRUE(batch.data.equal(at::tensor({1.5F, 2.5F, 3.5F}).view({3, 1})));
  options.inputs = "tokens";
  options.stages = "pad";
  kept_of(read_record_set(options), left_out);
  EXPECT_EQ(left_out, std::vector<size_t>{2});
}

TEST(TestParts, MayHaveOtherTypesInFieldsThatNoSampleNeeds) {
  const Folder folder;
  for (const char* const on_bad_record : {"stop", "skip"}) {
    DataOptions options = csv_of(folder, "x,note,label\n1,5,0\n2,6,1\n3,7,1\n");
    options.on_bad_record = on_bad_record;
    options.test_path = folder.write("test.csv", "x,note,label\n1,five,0\n2,6,1\n4,six,1\n");
    const std::string refused =
        message_of(ErrorCode::invalid_argument, [&] { read_record_set(options); });
    EXPECT_NE(refused.find("a test part of the same data set"), std::string::npos) << refused;
    EXPECT_NE(refused.find("note (encoded)"), std::string::npos) << refused;
    options.inputs = "x";
    options.target = "label";
    EXPECT_EQ(read_record_set(options).test_samples, 3);
    options.test_path = folder.write("other.csv", "z,note,label\n1,5,0\n");
    EXPECT_THROW(read_record_set(options), Error);
  }
}

// The numbers of classes in a list without names need not be those of the names.
TEST(TestParts, HaveTheNamesOfClassesThatTheTrainingPartHas) {
  const Folder folder;
  DataOptions options = csv_of(folder);
  options.name = "image_list";
  options.stages = "decode";
  for (const char* const image : {"a.png", "b.png"}) folder.write(image, "x");
  options.path = folder.write("train.txt", "a.png cat\nb.png dog\n");
  options.test_path = folder.write("test.txt", "a.png 1\nb.png 0\n");
  const std::string said =
      message_of(ErrorCode::invalid_argument, [&] { read_record_set(options); });
  EXPECT_NE(said.find("and 0 named classes, and data.path has"), std::string::npos) << said;
}

// Ten images, of which each has its number as label.
std::string ten_images() {
  std::string images;
  for (int i = 0; i < 10; ++i) images += static_cast<char>(i) + std::string(3072, 'x');
  return images;
}
DataOptions cifar_of(const Folder& folder, double test_fraction) {
  DataOptions options;
  options.name = "cifar";
  options.path = folder.write("data_batch_1.bin", ten_images()).string();
  options.test_fraction = test_fraction;
  return options;
}

// The file loses bytes of its last record and no page, so that no access fails.
TEST(ShortenedFiles, AreAnErrorInTheBatchThatReadsThem) {
  const Folder folder;
  const DataOptions options = cifar_of(folder, 0);
  const Dataset data = read_record_set(options);
  const auto source = record_pipelines(data).train;
  EXPECT_EQ(source->get_batch(Draws({8, 9})).target[1].item<int64_t>(), 9);
  std::filesystem::resize_file(options.path, 30000);
  const std::string message =
      message_of(ErrorCode::corrupt, [&] { source->get_batch(Draws({8, 9})); });
  EXPECT_NE(message.find("data_batch_1.bin, record 8"), std::string::npos) << message;
  EXPECT_NE(message.find("had 30730 bytes when it was opened, and now has 30000"),
            std::string::npos)
      << message;
}

// Files that are named are the training part alone.
TEST(CifarParts, OfFilesHaveNoTestPartUnlessItIsNamed) {
  const Folder folder;
  DataOptions options = cifar_of(folder, 0.2);
  EXPECT_EQ(read_record_set(options).train_samples, 8);
  EXPECT_EQ(read_record_set(options).test_samples, 2);
  folder.write("test_batch.bin", ten_images().substr(0, 3 * 3073));
  options.path = folder.path().string();
  EXPECT_EQ(read_record_set(options).train_samples, 10);
  EXPECT_EQ(read_record_set(options).test_samples, 3);
}

// An evaluation weighs a batch by the targets of its samples, also if the first one is damaged.
TEST(SkippedRecords, HaveNoTargets) {
  const Folder folder;
  DataOptions options = csv_of(folder);
  options.name = "jsonl";
  options.path =
      folder.write("rows.jsonl", "{oops\n{\"tokens\": [1, 2, 3]}\n{\"tokens\": [4, 5]}\n")
          .string();
  options.stages = "pad";
  const auto source = record_pipelines(read_record_set(options)).train;
  EXPECT_EQ(source->size_of({0, 0}).value().targets, 0);
  EXPECT_EQ(source->size_of({1, 0}).value().targets, 2);
}

TEST(SkippedRecords, OtherwiseEndTheRunWithTheRemedy) {
  const Folder folder;
  DataOptions options = csv_of(folder, "x,z,label\n1,2,0\n3,4\n5,6,1\n");
  options.on_bad_record = "stop";
  const std::string line = message_of(ErrorCode::corrupt, [&] { read_record_set(options); });
  EXPECT_NE(line.find("rows.csv, line 3 at byte 16: it has 2 cells"), std::string::npos) << line;
  EXPECT_NE(line.find("or data.on_bad_record=skip"), std::string::npos) << line;

  options = csv_of(folder, "x,z,label\n1,2,0\n3,4,1\nbad,6,1\n7,8,1\n");
  options.on_bad_record = "stop";
  const std::string cell = message_of(ErrorCode::corrupt, [&] { read_record_set(options); });
  EXPECT_NE(cell.find("most records have the field 'x'"), std::string::npos) << cell;
  EXPECT_NE(cell.find("or data.on_bad_record=skip"), std::string::npos) << cell;
}

// A document that the index knows as damaged is in no pack. Damage that a read finds leaves its
// pack out.
TEST(SkippedRecords, AreNotInPacks) {
  const auto reader = std::make_shared<MadeDocuments>(std::vector<int64_t>{4, 4, 4, 4, 4, 4});
  reader->known_damage = {1, 5};
  reader->unreadable = {3};
  const auto length = [&](int64_t i) { return reader->length(i).value_or(0); };
  const auto packing = std::make_shared<const plan::Packing>(
      6, length, plan::PackingOptions{.tokens = 8, .window = 6});
  ASSERT_EQ(packing->packs(), 2);
  const auto documents = [&](BadRecords rule) {
    return std::make_shared<DocumentSource>(reader, "tokens", plan::Subset(), 0, rule);
  };
  const auto source = [&](BadRecords rule) {
    return PackedSource(documents(rule), packing, 0, rule.skip);
  };
  const PackedSource packs = source({.skip = true});
  EXPECT_TRUE(packs.leaves_out());
  EXPECT_EQ(packs.bad_records(), (std::vector<int64_t>{1, 5}));
  std::vector<size_t> left_out;
  const Example batch = packs.get_kept(Draws({0, 1}), left_out);
  ASSERT_EQ(left_out.size(), 1);
  EXPECT_EQ(batch.data.sizes(), (at::IntArrayRef{1, 8}));
  EXPECT_EQ(packs.bad_records(), (std::vector<int64_t>{1, 3, 5}));
  EXPECT_EQ(batch.more.at("documents").max().item<int64_t>(), 1);
  const Draws damaged({static_cast<int64_t>(left_out[0])});
  left_out.clear();
  const Example none = packs.get_kept(damaged, left_out);
  EXPECT_EQ(none.data.sizes(), (at::IntArrayRef{0, 8}));
  EXPECT_EQ(none.more.at("positions").sizes(), (at::IntArrayRef{0, 8}));
  EXPECT_THROW(packs.get_batch(damaged), Error);
  expect_error([&] { PackedSource(documents({.skip = true}), packing); }, ErrorCode::unsupported,
               {"packing: a source may leave samples out"});

  expect_error([&] { source({.skip = true, .most = 1}); }, ErrorCode::invalid_argument,
               {"2 records could not be read", "data.bad_records", "made.jsonl, line 6"});
  expect_error([&] { source({}).get_batch(damaged); }, ErrorCode::corrupt,
               {"made.jsonl, line 4 is damaged"});
}

}  // namespace skipped_records_tests
}  // namespace trireme::data
