#include <gtest/gtest.h>

#include <trireme/records/record.h>

#include "../base/expect_error.h"

namespace trireme::records {
namespace {

TEST(Record, FindsItsFieldsByName) {
  const std::string word = "cat";
  Record record;
  record.fields.push_back(
      {.name = "name", .bytes = std::as_bytes(std::span(word)), .encoded = true});
  EXPECT_EQ(record.at("name").text(), "cat");
  EXPECT_EQ(record.find("label"), nullptr);
}

TEST(Record, ListsItsFieldsIfOneIsMissing) {
  Record record;
  record.fields = {{.name = "image"}, {.name = "label"}};
  EXPECT_NE(
      message_of(ErrorCode::invalid_argument, [&] { record.at("target"); }).find("image, label"),
      std::string::npos);
}

}  // namespace
}  // namespace trireme::records
