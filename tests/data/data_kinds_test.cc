// The table of data sets, with the rows of their keys and their sources.
#include <gmock/gmock.h>

#include <trireme/config/table.h>
#include <trireme/data/data_kinds.h>
#include <trireme/data/kinds/record_set.h>
#include <trireme/data/source_makers.h>
#include <any>

#include "../base/expect_error.h"

namespace trireme::data_kinds_test {
namespace {

using data::DataKind;
using data::DataOptions;
using testing::HasSubstr;

TEST(DataKinds, AreInTheOrderOfTheTable) {
  std::vector<std::string> expected{"digits", "idx", "text", "criteo"};
  for (const DataKind& kind : data::record_kinds()) expected.push_back(kind.name);
  expected.insert(expected.end(), {"zip", "mixture"});
  EXPECT_EQ(data::data_sets(), expected);
}

TEST(DataKinds, UseKeysThatHaveARowForThem) {
  const config::Table& table = config::table_of<DataOptions>();
  for (const std::string& name : data::data_sets()) {
    for (const std::string_view key : data::find_kind(name)->keys) {
      const config::Row* const row = table.find(key);
      ASSERT_TRUE(row) << name << " uses " << key;
      EXPECT_THAT(row->only_for.values, testing::Contains(name)) << key;
    }
  }
}

TEST(DataKinds, UseEachKeyThatIsNotForAll) {
  for (const config::Row& row : config::table_of<DataOptions>().rows()) {
    const bool is_for_some = !row.only_for.selector.empty();
    EXPECT_EQ(is_for_some, !row.only_for.values.empty()) << row.name;
  }
}

TEST(DataKinds, HaveSourcesOfWhatTheyRead) {
  for (const std::string& name : data::data_sets())
    EXPECT_THROW(data::make_sources(name, {}), std::bad_any_cast) << name;
}

TEST(DataKinds, AreRefusedIfTheNameIsTakenOrNothingIsRead) {
  const auto refusal = [](DataKind kind) {
    return message_of(ErrorCode::invalid_argument, [&] { data::add_kind(std::move(kind)); });
  };
  const auto read = [](const DataOptions&) { return data::Dataset(); };
  EXPECT_THAT(refusal({.name = "idx", .read = read}), HasSubstr("'idx' already exists"));
  EXPECT_THAT(refusal({.name = "", .read = read}), HasSubstr("cannot be named ''"));
  EXPECT_THAT(refusal({.name = "nothing"}), HasSubstr("nothing makes the data set 'nothing'"));
}

TEST(DataKinds, OfOptionsThatNameNoneAreRefused) {
  EXPECT_THAT(message_of(ErrorCode::invalid_argument, [] { check(DataOptions{.name = "digit"}); }),
              HasSubstr("data set 'digit' is not known"));
}

}  // namespace
}  // namespace trireme::data_kinds_test
