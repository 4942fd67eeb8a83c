#include <fmt/format.h>
#include <gmock/gmock.h>

#include <trireme/base/files.h>
#include <trireme/base/hash.h>
#include <trireme/data/image_table.h>
#include <algorithm>

#include "data_files.h"

namespace trireme::data::digits_test {
namespace {

const std::filesystem::path kShipped =
    std::filesystem::path(TRIREME_SOURCE_DIR) / "data" / "digits.csv.gz";

// One line of the format: `pixel` 64 times, then `label`.
std::string line(const std::string& label, const std::string& pixel = "3") {
  const std::vector<std::string> pixels(64, pixel);
  return fmt::format("{},{}\n", fmt::join(pixels, ","), label);
}

TEST(Digits, ShipTheFileThatTheReadmeDescribes) {
  EXPECT_THAT(read_file(kShipped.parent_path() / "README.md"),
              testing::HasSubstr(sha256_hex(read_file(kShipped))));
}

TEST(Digits, ReadsTheShippedFile) {
  const ImageTable table = read_digits(kShipped);
  EXPECT_EQ(table.count, 1797);
  EXPECT_EQ(table.channels * table.height * table.width, 64);
  EXPECT_EQ(table.classes, 10);
  EXPECT_EQ(table.scale, 16.0f);
  EXPECT_EQ(table.pixels.size(), 1797u * 64u);
  EXPECT_EQ(*std::max_element(table.pixels.begin(), table.pixels.end()), 16);
  EXPECT_THAT(std::vector<int64_t>(table.labels.begin(), table.labels.begin() + 5),
              testing::ElementsAre(0, 1, 2, 3, 4));
  EXPECT_THAT(std::vector<uint8_t>(table.pixels.begin(), table.pixels.begin() + 8),
              testing::ElementsAre(0, 0, 5, 13, 9, 1, 0, 0));
}

TEST(Digits, ReadsLinesWithEitherEndingAndWithoutAFinalOne) {
  const Folder folder;
  const std::string unix_lines = line("1") + line("2");
  std::string dos_lines;
  for (const char c : unix_lines) {
    if (c == '\n') dos_lines += '\r';
    dos_lines += c;
  }
  for (const std::string& content :
       {unix_lines, dos_lines, unix_lines.substr(0, unix_lines.size() - 1)})
    EXPECT_THAT(read_digits(folder.write("digits.csv", content)).labels,
                testing::ElementsAre(1, 2));
}

TEST(Digits, NamesFileAndLineOfAWrongNumberOfColumns) {
  const Folder folder;
  const auto read = [&](const std::string& second) {
    return [&folder, second] { read_digits(folder.write("digits.csv", line("1") + second)); };
  };
  expect_error(read("1,2,3\n"), ErrorCode::corrupt, {"digits.csv, line 2", "3 columns", "65"});
  expect_error(read(fmt::format("4,{}", line("2"))), ErrorCode::corrupt, {"line 2", "66 columns"});
  expect_error(read("\n"), ErrorCode::corrupt, {"line 2", "1 columns"});
}

TEST(Digits, NamesAValueThatIsNotANumber) {
  const Folder folder;
  expect_error([&] { read_digits(folder.write("digits.csv", line("seven"))); }, ErrorCode::corrupt,
               {"line 1", "column 65", "'seven'"});
  expect_error([&] { read_digits(folder.write("digits.csv", line("1", "2.5"))); },
               ErrorCode::corrupt, {"line 1", "column 1", "'2.5'"});
}

TEST(Digits, NamesAPixelOutOfRange) {
  const Folder folder;
  expect_error([&] { read_digits(folder.write("digits.csv", line("1", "17"))); },
               ErrorCode::corrupt, {"digits.csv, line 1", "pixel 17", "column 1", "0..16"});
  expect_error([&] { read_digits(folder.write("digits.csv", line("1", "-1"))); },
               ErrorCode::corrupt, {"pixel -1"});
}

TEST(Digits, NamesSampleAndRangeOfAWrongLabel) {
  const Folder folder;
  const auto file = folder.write("digits.csv", line("0") + line("7"));
  expect_error([&] { read_digits(file, 7); }, ErrorCode::invalid_argument,
               {"digits.csv", "label 7", "sample 1", "0..6", "data.classes=7"});
  EXPECT_EQ(read_digits(file, 8).classes, 8);
  EXPECT_EQ(read_digits(file, 100).classes, 100);
  EXPECT_EQ(read_digits(file).classes, 8);
}

TEST(Digits, RefusesALabelBelowZeroWithAndWithoutClasses) {
  const Folder folder;
  const auto file = folder.write("digits.csv", line("0") + line("-2"));
  expect_error([&] { read_digits(file); }, ErrorCode::invalid_argument,
               {"label -2", "sample 1", "below 0"});
  expect_error([&] { read_digits(file, 10); }, ErrorCode::invalid_argument,
               {"label -2", "sample 1", "0..9"});
}

TEST(Digits, RefusesFewerThanOneClass) {
  expect_error([] { read_digits(kShipped, 0); }, ErrorCode::invalid_argument,
               {"data.classes", "0"});
}

TEST(ImageTableSelect, TakesRowsInTheRequestedOrder) {
  const ImageTable all = read_digits(kShipped), some = select(all, {7, 3, 7});
  EXPECT_EQ(some.count, 3);
  EXPECT_THAT(some.labels, testing::ElementsAre(all.labels[7], all.labels[3], all.labels[7]));
  EXPECT_TRUE(std::equal(some.pixels.begin() + 64, some.pixels.begin() + 128,
                         all.pixels.begin() + 3 * 64));
  EXPECT_EQ(some.classes, all.classes);
  EXPECT_EQ(some.scale, all.scale);
  EXPECT_EQ(select(all, {}).count, 0);
}

TEST(ImageTableSelect, RefusesARowThatDoesNotExist) {
  const ImageTable all = read_digits(kShipped);
  expect_error([&] { select(all, {1797}); }, ErrorCode::invalid_argument, {"1797", "0..1796"});
  expect_error([&] { select(all, {-1}); }, ErrorCode::invalid_argument, {"-1"});
}

}  // namespace
}  // namespace trireme::data::digits_test
