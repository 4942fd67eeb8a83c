#include <ATen/ATen.h>
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <trireme/base/files.h>
#include <trireme/base/hash.h>
#include <trireme/data/click_source.h>
#include <trireme/data/click_table.h>
#include <trireme/data/kinds/criteo_set.h>
#include <algorithm>
#include <cmath>

#include "../base/expect_error.h"
#include "data_files.h"

namespace trireme::data::clicks_test {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

const std::filesystem::path kShippedClicks =
    std::filesystem::path(TRIREME_SOURCE_DIR) / "data" / "clicks.tsv.gz";

// One line of the format, with some columns replaced; they count from 1.
std::string line(const std::map<int, std::string>& columns = {}) {
  std::vector<std::string> all(40, "5");
  all[0] = "1";
  for (size_t i = 14; i < 40; ++i) all[i] = "68fd1e64";
  for (const auto& [column, text] : columns) all[static_cast<size_t>(column) - 1] = text;
  return fmt::format("{}\n", fmt::join(all, "\t"));
}

TEST(Clicks, ReadsNumbersCategoriesAndLabels) {
  const Folder folder;
  const std::string content = line({{2, "0"}, {3, "-2"}, {4, ""}, {5, "1000000"}, {16, "ff"}}) +
                              line({{1, "0"}, {40, ""}});
  for (const std::string& stored : {content, gzipped(content), zstd_packed(content)}) {
    const ClickTable table = read_clicks(folder.write("clicks.tsv", stored));
    EXPECT_EQ(table.count, 2);
    EXPECT_THAT(table.labels, ElementsAre(1, 0));
    ASSERT_EQ(table.numbers.size(), 26);
    EXPECT_EQ(table.numbers[0], 0);  // log(1 + 0)
    EXPECT_EQ(table.numbers[1], 0);  // Below 0.
    EXPECT_EQ(table.numbers[2], 0);  // Missing.
    EXPECT_FLOAT_EQ(table.numbers[3], static_cast<float>(std::log(1000001.0)));
    ASSERT_EQ(table.categories.size(), 52);
    EXPECT_EQ(table.categories[0], 0x68fd1e64);
    EXPECT_EQ(table.categories[1], 0xff);
    EXPECT_EQ(table.categories[51], 0);
  }
}

TEST(Clicks, NamesFileLineAndColumnOfDamage) {
  const Folder folder;
  const auto refusal = [&](const std::string& bad) {
    const std::filesystem::path file = folder.write("clicks.tsv", line() + bad + line());
    return message_of(ErrorCode::corrupt, [&] { read_clicks(file); });
  };
  EXPECT_THAT(refusal(line({{1, "2"}})),
              AllOf(HasSubstr("clicks.tsv, line 2: column 1 is"), HasSubstr("0 or 1")));
  EXPECT_THAT(refusal(line({{9, "4.5"}})), HasSubstr("line 2: column 9 is"));
  EXPECT_THAT(refusal(line({{15, "68fd1e6g"}})), HasSubstr("line 2: column 15 is"));
  EXPECT_THAT(refusal(line({{40, "168fd1e64"}})), HasSubstr("column 40 is"));
  EXPECT_THAT(refusal("1\t2\t3\n"), HasSubstr("line 2: there are 3 columns, but 40 are needed"));
  EXPECT_THAT(refusal("\n"), HasSubstr("line 2: there are 1 columns"));
}

TEST(Clicks, ShipTheFileThatTheReadmeDescribes) {
  EXPECT_THAT(read_file(kShippedClicks.parent_path() / "README.md"),
              HasSubstr(sha256_hex(read_file(kShippedClicks))));
  const ClickTable table = read_clicks(kShippedClicks);
  EXPECT_EQ(table.count, 6000);
  EXPECT_GT(std::ranges::count(table.labels, 1), 1800);
  EXPECT_GT(std::ranges::count(table.categories, 0U), 1000);  // Some are missing.
}

TEST(Clicks, HoldOutAPartThatItsSeedDraws) {
  DataOptions options{.name = "criteo", .path = kShippedClicks.string()};
  const Dataset data = read_criteo_set(options);
  EXPECT_EQ(data.train_samples, 4800);
  EXPECT_EQ(data.test_samples, 1200);
  EXPECT_EQ(data.input.shape, std::vector<int64_t>{13});
  EXPECT_EQ(data.input.categories, 26);
  options.split_seed = 3;
  const Dataset other = read_criteo_set(options);
  EXPECT_EQ(other.content, data.content);
  EXPECT_NE(other.split.test, data.split.test);
}

TEST(Clicks, BecomeSamplesWithNamedCategories) {
  const Dataset data = read_criteo_set({.name = "criteo", .path = kShippedClicks.string()});
  const Sources sources = click_sources(data);
  EXPECT_EQ(sources.train->size(), 4800);
  const Example batch = sources.test->get_batch({4, 2});
  EXPECT_EQ(batch.data.sizes().vec(), (std::vector<int64_t>{2, 13}));
  EXPECT_EQ(batch.target.scalar_type(), at::kLong);
  EXPECT_EQ(batch.more.at("categories").sizes().vec(), (std::vector<int64_t>{2, 26}));
  const Example one = sources.test->get(2);
  EXPECT_TRUE(at::equal(batch.data[1], one.data));
  EXPECT_TRUE(at::equal(batch.more.at("categories")[1], one.more.at("categories")));
  EXPECT_TRUE(at::equal(batch.target[1], one.target));
  EXPECT_THAT(message_of(ErrorCode::invalid_argument, [&] { sources.test->get_batch({1200}); }),
              HasSubstr("sample 1200 is outside 0..1199"));
}

}  // namespace
}  // namespace trireme::data::clicks_test
