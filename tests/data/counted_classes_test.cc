// The number of classes is counted once and kept in the index.
#include <gmock/gmock.h>

#include <trireme/base/files.h>
#include <trireme/data/kinds/record_set.h>
#include <trireme/data/kinds/zip_set.h>
#include <trireme/records/pack/pack.h>
#include <chrono>
#include <map>

#include "data_files.h"

namespace trireme::counted_classes_test {
namespace {

namespace fs = std::filesystem;
using data::DataOptions;
using data::expect_error;

constexpr int kRows = 3000;
const std::string kLine(80, '-');  // The files are larger than the parts that their digests cover.

std::string csv_text() {
  std::string text = "x,label,kind,about\n";
  for (int i = 0; i < kRows; ++i)
    text += std::to_string(i % 7) + "," + std::to_string(i % 3) + "," + std::to_string(i % 5) +
            "," + kLine + "\n";
  return text;
}

std::string jsonl_text() {
  std::string text;
  for (int i = 0; i < kRows; ++i)
    text += "{\"x\": " + std::to_string(i % 7) + ", \"label\": " + std::to_string(i % 3) +
            ", \"kind\": " + std::to_string(i % 5) + ", \"about\": \"" + kLine + "\"}\n";
  return text;
}

int64_t classes_of(const DataOptions& options) {
  return data::read_record_set(options).input.classes;
}

DataOptions options_for(const std::string& format, const fs::path& path,
                        const std::string& target = "label") {
  DataOptions options;
  options.name = format;
  options.path = path.string();
  options.inputs = "x";
  options.target = target;
  return options;
}

// Writes other bytes at the middle of a file, as if nothing had happened.
void replace_in_the_middle(const fs::path& file, const std::string& from, const std::string& to,
                           bool keeps_time = true) {
  const auto time = fs::last_write_time(file);
  std::string text = read_file(file);
  const size_t at = text.find(from, text.size() / 2);
  ASSERT_NE(at, std::string::npos);
  text.replace(at, from.size(), to);
  std::ofstream(file, std::ios::binary) << text;
  fs::last_write_time(file, keeps_time ? time : time + std::chrono::hours(1));
}

TEST(CountedClasses, AreKeptSoThatTheNextOpeningReadsNoRecords) {
  const data::Folder folder;
  const std::map<std::string, std::string> texts{{"csv", csv_text()}, {"jsonl", jsonl_text()}};
  for (const auto& [format, text] : texts) {
    const fs::path file = folder.write("rows." + format, text);
    EXPECT_EQ(classes_of(options_for(format, file)), 3);
    replace_in_the_middle(file, format == "csv" ? ",2,3,-" : "2, \"kind\": 3",
                          format == "csv" ? ",9,8,-" : "9, \"kind\": 8");
    EXPECT_EQ(classes_of(options_for(format, file)), 3);
    // The scan for the index has seen all fields.
    EXPECT_EQ(classes_of(options_for(format, file, "kind")), 5);
  }
}

TEST(CountedClasses, OfTextsAreFoundWhileTheIndexIsMade) {
  const data::Folder folder;
  const std::map<std::string, std::string> texts{
      {"csv", csv_text()},
      {"jsonl", jsonl_text() + "{\"x\": 1, \"label\": 2, \"kind\": 1, \"about\": \"\"}\n"}};
  for (const auto& [format, text] : texts) {
    const fs::path file = folder.write("rows." + format, text);
    records::open_records({.format = format, .path = file.string()});
    replace_in_the_middle(file, format == "csv" ? ",2,3,-" : "2, \"kind\": 3",
                          format == "csv" ? ",9,8,-" : "9, \"kind\": 8");
    EXPECT_EQ(classes_of(options_for(format, file)), 3);
  }
}

// A column that some line makes a text would be left out of the inputs.
TEST(DoubtfulFields, AreRefusedByTheFirstLineThatHasNoNumber) {
  const data::Folder folder;
  const fs::path csv =
      folder.write("rows.csv", "x,z,label\n1,\"2\",0\n2,1.5,1\nabc,3,0\nd,4,1\n5,5,0\n");
  expect_error([&] { data::read_record_set(options_for("csv", csv)); }, ErrorCode::corrupt,
               {"most records have the field 'x'", "line 4 has 'abc' there"});
  DataOptions options = options_for("csv", csv);
  options.inputs = "";
  expect_error([&] { data::read_record_set(options); }, ErrorCode::corrupt,
               {"line 4 has 'abc' there", "data.inputs with the other fields"});
  options.inputs = "z";  // Quotes do not make a text of a number.
  EXPECT_EQ(data::read_record_set(options).train_samples, 4);

  const fs::path names = folder.write("names.csv", "x,label\n7,0\nb,1\nc,0\nd,1\n");
  options.path = names;
  options.inputs = "";
  EXPECT_THROW(data::read_record_set(options), Error);  // There are no other numbers.

  const fs::path jsonl =
      folder.write("rows.jsonl",
                   "{\"x\": 1, \"y\": 1, \"label\": 0}\n{\"x\": 2, \"y\": 1, \"label\": 1}\n"
                   "{\"x\": 3, \"label\": 1}\n");
  options = options_for("jsonl", jsonl);
  EXPECT_EQ(data::read_record_set(options).train_samples, 2);
  options.inputs = "";
  expect_error([&] { data::read_record_set(options); }, ErrorCode::corrupt,
               {"the field 'y'", "line 3 has no member 'y'"});
  options.inputs = "x,y";
  expect_error([&] { data::read_record_set(options); }, ErrorCode::corrupt,
               {"line 3 has no member 'y'"});
}

// The error names the record, so it is looked for.
TEST(CountedClasses, BelowZeroAreRefusedByTheRecord) {
  const data::Folder folder;
  const fs::path file = folder.write("rows.csv", "x,label\n1,0\n2,-3\n");
  expect_error([&] { classes_of(options_for("csv", file)); }, ErrorCode::invalid_argument,
               {"line 3", "the label is -3, below 0"});
}

std::string rows_of(const std::string& format, const std::vector<int>& labels) {
  std::string text = format == "csv" ? "x,label\n" : "";
  for (const int label : labels)
    text += format == "csv" ? "1," + std::to_string(label) + "\n"
                            : "{\"x\": 1, \"label\": " + std::to_string(label) + "}\n";
  return text;
}

// The index knows the range of a column, so the error comes when the data set is opened.
TEST(CountedClasses, OutsideTheGivenOnesAreRefusedByTheRecord) {
  for (const std::string format : {"csv", "jsonl"}) {
    SCOPED_TRACE(format);
    const data::Folder folder;
    const auto line = [&](int row) {
      return "line " + std::to_string(format == "csv" ? row + 1 : row);
    };
    const auto part = [&](const std::string& name, const std::vector<int>& labels) {
      return folder.write(name + "." + format, rows_of(format, labels)).string();
    };
    DataOptions options = options_for(format, part("train", {0, 1, 2, 1, 0, 1}));
    options.classes = 2;
    options.test_fraction = 0;
    expect_error([&] { classes_of(options); }, ErrorCode::invalid_argument,
                 {"train." + format, line(3), "the label is 2, outside 0..1 (data.classes=2)"});
    options.stages = "take(2)";  // The others do not count.
    EXPECT_EQ(classes_of(options), 2);
    options.stages = "";
    options.path = part("right", {0, 1, 0, 1});
    EXPECT_EQ(classes_of(options), 2);
    for (const int64_t classes : {2, -1}) {
      options.classes = classes;
      options.test_path = part("test", {0, 1});
      EXPECT_EQ(classes_of(options), 2);
      options.test_path = part("larger", {0, 1, 5});
      expect_error([&] { classes_of(options); }, ErrorCode::invalid_argument,
                   {"larger." + format, line(3), "the label is 5, outside 0..1",
                    classes > 0 ? "(data.classes=2)" : "the labels of the training part"});
      options.test_path = part("below", {1, -3});
      expect_error([&] { classes_of(options); }, ErrorCode::invalid_argument,
                   {"below." + format, line(2), "the label is -3, below 0"});
    }
    options = options_for(format, part("negative", {0, -1, 1}));
    options.classes = 2;
    expect_error([&] { classes_of(options); }, ErrorCode::invalid_argument,
                 {"negative." + format, line(2), "the label is -1, below 0"});
  }
}

TEST(CountedClasses, OfATestPartOfTfrecordAreThoseOfTheTrainingPart) {
  const data::Folder folder;
  const auto packed = [&](const std::string& name, const std::vector<int>& labels) {
    records::OpenOptions open;
    open.path = folder.write(name + ".csv", rows_of("csv", labels)).string();
    records::pack_records({{"", records::open_records(open)}},
                          {.to = "tfrecord", .output = folder.path() / name});
    return folder.path() / name;
  };
  DataOptions options = options_for("tfrecord", packed("train", {0, 1, 2}));
  options.test_path = packed("test", {0, 3}).string();
  for (int opening = 0; opening < 2; ++opening)
    expect_error([&] { classes_of(options); }, ErrorCode::invalid_argument,
                 {"test", "record 1", "the label is 3, outside 0..2"});
  options.test_path = packed("right", {2, 0}).string();
  EXPECT_EQ(classes_of(options), 3);
  // The kept count is compared with given classes too.
  options.classes = 2;
  expect_error([&] { classes_of(options); }, ErrorCode::invalid_argument,
               {"train", "record 2", "the label is 2, outside 0..1"});
}

TEST(CountedClasses, OfTokensAreThoseOfBothParts) {
  const data::Folder folder;
  const auto part = [&](const std::string& name, int token) {
    std::string text;
    for (int i = 0; i < 5; ++i)
      text += "{\"tokens\": [1, 2, " + std::to_string(i == 3 ? token : 3) + "]}\n";
    return folder.write(name, text).string();
  };
  DataOptions options;
  options.name = "jsonl";
  options.path = part("train.jsonl", 9);
  options.test_path = part("test.jsonl", 19);
  EXPECT_EQ(classes_of(options), 20);
  for (const char* const stages : {"", "pad", "pack(8)"}) {
    options.stages = stages;
    options.classes = 20;
    EXPECT_EQ(classes_of(options), 20);
    options.classes = 10;
    expect_error([&] { classes_of(options); }, ErrorCode::invalid_argument,
                 {"test.jsonl", "line 4", "the token is 19, outside 0..9 (data.classes=10)"});
    options.classes = 5;
    expect_error([&] { classes_of(options); }, ErrorCode::invalid_argument,
                 {"train.jsonl", "line 4", "the token is 9, outside 0..4 (data.classes=5)"});
  }
  options.stages = "filter(some)";  // It may leave the document out.
  EXPECT_EQ(classes_of(options), 5);
  options.stages = "";
  options.path = part("negative.jsonl", -2);
  for (const int64_t classes : {-1, 20}) {
    options.classes = classes;
    expect_error([&] { classes_of(options); }, ErrorCode::invalid_argument,
                 {"negative.jsonl", "line 4", "the token is -2, below 0"});
  }
}

// Files of tokens have no index that knows them, so a given number is not compared with all.
TEST(CountedClasses, OfFilesOfTokensNameTheBlockOfANegativeOne) {
  const data::Folder folder;
  std::string bytes;
  for (const int32_t token : {1, 2, 3, 4, 5, -6, 7, 8, 9})
    bytes.append(reinterpret_cast<const char*>(&token), sizeof token);
  DataOptions options;
  options.name = "tokens";
  options.path = folder.write("a.bin", bytes).string();
  options.token_type = "int32";
  options.block = 4;
  expect_error([&] { classes_of(options); }, ErrorCode::invalid_argument,
               {"a.bin", "record 1", "the token is -6, below 0"});
  options.classes = 5;
  EXPECT_EQ(classes_of(options), 5);
}

TEST(CountedClasses, OfTfrecordAreKeptToo) {
  const data::Folder folder;
  const fs::path file = folder.write("rows.csv", csv_text());
  records::OpenOptions open;
  open.path = file.string();
  records::pack_records({{"", records::open_records(open)}},
                        {.to = "tfrecord", .output = folder.path() / "packed"});
  DataOptions options = options_for("tfrecord", folder.path() / "packed");
  EXPECT_EQ(classes_of(options), 3);
  replace_in_the_middle(folder.path() / "packed" / "shard-000000.tfrecord", "-----", "--+--");
  EXPECT_EQ(classes_of(options), 3);
  options.target = "kind";
  expect_error([&] { classes_of(options); }, ErrorCode::corrupt, {"CRC-32C"});
  // Records that could not be read may have a class that the others do not have.
  options.on_bad_record = "skip";
  EXPECT_EQ(classes_of(options), 5);
  options.on_bad_record = "stop";
  expect_error([&] { classes_of(options); }, ErrorCode::corrupt, {"CRC-32C"});
}

// The index still holds for a file with another time whose ends are the same.
TEST(CountedClasses, AreCountedAgainIfAFileHasAnotherTime) {
  const data::Folder folder;
  const fs::path file = folder.write("rows.csv", csv_text());
  const DataOptions options = options_for("csv", file);
  const std::string content = data::read_record_set(options).content;
  replace_in_the_middle(file, ",2,3,-", ",8,3,-", false);
  EXPECT_EQ(classes_of(options), 9);
  replace_in_the_middle(file, ",8,3,-", ",2,3,-");
  const data::Dataset data = data::read_record_set(options);
  EXPECT_EQ(data.input.classes, 9);
  EXPECT_EQ(data.content, content);  // What is kept is no part of it.
}

TEST(CountedClasses, OfAnIndexThatWasMadeAnewAreCountedAgain) {
  const data::Folder folder;
  const fs::path file = folder.write("rows.csv", csv_text());
  const DataOptions options = options_for("csv", file);
  EXPECT_EQ(classes_of(options), 3);
  replace_in_the_middle(file, ",2,3,-", ",8,3,-");
  records::OpenOptions open = data::files_of_parts(options)[0].open;
  open.make_index_anew = true;
  records::open_records(open);
  EXPECT_EQ(classes_of(options), 9);
}

TEST(CountedClasses, OfTokensAreKept) {
  const data::Folder folder;
  std::string text;
  for (int i = 0; i < 200; ++i) text += "{\"tokens\": [" + std::to_string(i % 40) + ", 1, 2]}\n";
  DataOptions options;
  options.name = "jsonl";
  options.path = folder.write("tokens.jsonl", text).string();
  options.stages = "pack(8)";
  EXPECT_EQ(classes_of(options), 40);
  replace_in_the_middle(options.path, "[39, 1", "[77, 1");
  EXPECT_EQ(classes_of(options), 40);
}

TEST(CountedClasses, OfZippedFilesAreKeptByTheOneThatHasTheField) {
  const data::Folder folder;
  std::string numbers = "x\n", labels = "kind\n";
  for (int i = 0; i < 60; ++i) {
    numbers += std::to_string(i) + "\n";
    labels += std::to_string(i % 4) + "\n";
  }
  folder.write("x.csv", numbers);
  const fs::path file = folder.write("y.csv", labels);
  DataOptions options;
  options.name = "zip";
  options.target = "kind";
  options.sources = "[{\"name\": \"csv\", \"path\": \"" + (folder.path() / "x.csv").string() +
                    "\"}, {\"name\": \"csv\", \"path\": \"" + file.string() + "\"}]";
  const auto read = [&] { return data::find_kind("zip")->read(options).input.classes; };
  EXPECT_EQ(read(), 4);
  replace_in_the_middle(file, "3\n", "8\n");
  EXPECT_EQ(read(), 4);
}

}  // namespace
}  // namespace trireme::counted_classes_test
