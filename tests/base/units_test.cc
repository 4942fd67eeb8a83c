#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <trireme/base/deadline.h>
#include <trireme/base/units.h>
#include <array>

#include "expect_error.h"

namespace trireme::units_test {
namespace {

using std::chrono::hours;
using std::chrono::milliseconds;
using std::chrono::minutes;
using std::chrono::seconds;
using testing::AllOf;
using testing::HasSubstr;

TEST(Duration, IsReadWithItsUnit) {
  EXPECT_EQ(parse_duration("250ms"), milliseconds(250));
  EXPECT_EQ(parse_duration("5s"), seconds(5));
  EXPECT_EQ(parse_duration("5 s"), seconds(5));
  EXPECT_EQ(parse_duration("2min"), minutes(2));
  EXPECT_EQ(parse_duration("1.5h"), minutes(90));
  EXPECT_EQ(parse_duration("0.25s"), milliseconds(250));
  EXPECT_EQ(parse_duration("0ms"), milliseconds(0));
}

TEST(Duration, IsRefusedWithoutUnitOrNumber) {
  for (const char* text : {"", "5", "s", "5 minutes", "-5s", "1e3s", "5  s", "1.s", ".5s",
                           "1.2.3s", "inf s", "5s "}) {
    EXPECT_THAT(message_of(ErrorCode::invalid_argument, [&] { parse_duration(text); }),
                AllOf(HasSubstr("'" + std::string(text) + "'"), HasSubstr("250ms")));
  }
}

TEST(Duration, IsCutToAHundredYears) {
  for (const char* text :
       {"9999999999s", "99999999999999999999s", "9223372036854775807ms", "9223372036854775807.9h"})
    EXPECT_EQ(parse_duration(text), kLongestWait) << text;
  EXPECT_EQ(parse_duration("876000h"), kLongestWait);
  EXPECT_LT(parse_duration("875999h"), kLongestWait);
  for (const char* text : {"-1", "-1s", "-0s", "1e30s", "inf", "nan", "infs", "0x10s"})
    message_of(ErrorCode::invalid_argument, [&] { parse_duration(text); });
  EXPECT_EQ(format_duration(kLongestWait), "876000 h 00 min");
  EXPECT_FALSE(format_duration(milliseconds::max()).empty());
  EXPECT_EQ(format_duration(milliseconds::min()).front(), '-');
}

TEST(Duration, IsPrintedInTheUnitThatFits) {
  EXPECT_EQ(format_duration(milliseconds(0)), "0 ms");
  EXPECT_EQ(format_duration(milliseconds(850)), "850 ms");
  EXPECT_EQ(format_duration(milliseconds(999)), "999 ms");
  EXPECT_EQ(format_duration(milliseconds(1000)), "1.0 s");
  EXPECT_EQ(format_duration(milliseconds(12345)), "12.3 s");
  EXPECT_EQ(format_duration(seconds(245)), "4 min 05 s");
  EXPECT_EQ(format_duration(minutes(130)), "2 h 10 min");
  EXPECT_EQ(format_duration(hours(30)), "30 h 00 min");
  EXPECT_EQ(format_duration(milliseconds(-850)), "-850 ms");
}

TEST(Duration, IsRoundedBeforeItsUnitIsChosen) {
  EXPECT_EQ(format_duration(milliseconds(59'949)), "59.9 s");
  EXPECT_EQ(format_duration(milliseconds(59'950)), "1 min 00 s");
  EXPECT_EQ(format_duration(milliseconds(3'599'499)), "59 min 59 s");
  EXPECT_EQ(format_duration(milliseconds(3'599'500)), "1 h 00 min");
}

TEST(Bytes, AreReadWithOrWithoutUnit) {
  EXPECT_EQ(parse_bytes("0"), 0);
  EXPECT_EQ(parse_bytes("1024"), 1024);
  EXPECT_EQ(parse_bytes("12B"), 12);
  EXPECT_EQ(parse_bytes("64KB"), 64'000);
  EXPECT_EQ(parse_bytes("25MB"), 25'000'000);
  EXPECT_EQ(parse_bytes("64KiB"), 65'536);
  EXPECT_EQ(parse_bytes("1.5 GiB"), 1'610'612'736);
  EXPECT_EQ(parse_bytes("2TB"), 2'000'000'000'000);
  EXPECT_EQ(parse_bytes("9223372036854775807"), 9223372036854775807);  // All digits are kept.
}

TEST(Bytes, AreRefusedWithAnUnknownUnit) {
  for (const char* text :
       {"", "MB", "25mb", "25M", "-1", "1..5KB", "9223372036854775808", "99999999TiB"}) {
    EXPECT_THAT(message_of(ErrorCode::invalid_argument, [&] { parse_bytes(text); }),
                AllOf(HasSubstr("'" + std::string(text) + "'"), HasSubstr("25MB")));
  }
}

TEST(Bytes, ArePrintedWithOneDecimal) {
  EXPECT_EQ(format_bytes(0), "0 B");
  EXPECT_EQ(format_bytes(512), "512 B");
  EXPECT_EQ(format_bytes(999), "999 B");
  EXPECT_EQ(format_bytes(1000), "1.0 KB");
  EXPECT_EQ(format_bytes(1'500'000), "1.5 MB");
  EXPECT_EQ(format_bytes(999'940), "999.9 KB");
  EXPECT_EQ(format_bytes(999'960), "1.0 MB");
  EXPECT_EQ(format_bytes(-1'500'000), "-1.5 MB");
  EXPECT_EQ(format_bytes(9223372036854775807), "9.2 EB");
}

TEST(NearestWord, FindsATypingError) {
  constexpr std::array<std::string_view, 5> kKnown = {"batch", "data.batch", "optimizer.lr",
                                                      "strategy.name", "momentum"};
  const auto nearest = [&](std::string_view word) {
    return nearest_word(word, kKnown.data(), kKnown.size());
  };
  EXPECT_EQ(nearest("bacth"), "batch");
  EXPECT_EQ(nearest("momentun"), "momentum");
  EXPECT_EQ(nearest("optimiser.lr"), "optimizer.lr");
  EXPECT_EQ(nearest("strategy.nam"), "strategy.name");
  EXPECT_EQ(nearest("batch"), "batch");
}

TEST(NearestWord, IsEmptyIfNothingIsNear) {
  constexpr std::array<std::string_view, 2> kKnown = {"batch", "x"};
  EXPECT_EQ(nearest_word("learning_rate", kKnown.data(), kKnown.size()), "");
  EXPECT_EQ(nearest_word("y", kKnown.data(), kKnown.size()), "");
  EXPECT_EQ(nearest_word("", kKnown.data(), kKnown.size()), "");
  EXPECT_EQ(nearest_word("batch", nullptr, 0), "");
}

}  // namespace
}  // namespace trireme::units_test
