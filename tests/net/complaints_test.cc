#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <trireme/net/complaints.h>
#include <memory>

namespace trireme::net::complaints_test {
namespace {

using testing::ElementsAre;
using testing::SizeIs;

class ComplaintsTest : public testing::Test {
 protected:
  void add(const std::string& address, int count) {
    for (int i = 0; i < count; ++i) complaints->add(address, "line of " + address, now);
  }
  std::vector<std::string> lines;
  std::unique_ptr<Complaints> complaints =
      std::make_unique<Complaints>([this](const std::string& line) { lines.push_back(line); });
  Complaints::Clock::time_point now{};
};

TEST_F(ComplaintsTest, AFewLinesAreWrittenAsTheyAre) {
  add("a", Complaints::kLines);
  complaints.reset();
  EXPECT_THAT(lines, SizeIs(Complaints::kLines));
}

TEST_F(ComplaintsTest, ManyLinesBecomeACountWhenThePeriodIsOver) {
  add("a", 317);
  EXPECT_THAT(lines, SizeIs(5));
  EXPECT_EQ(complaints->failures("a"), 317);
  now += Complaints::kPeriod;
  complaints->tick(now);
  ASSERT_THAT(lines, SizeIs(6));
  EXPECT_EQ(lines.back(), "... and 312 more from a in the last 10.0 s");
  EXPECT_EQ(complaints->failures("a"), 0);
  add("a", 1);
  EXPECT_EQ(lines.back(), "line of a");
}

TEST_F(ComplaintsTest, EachAddressHasItsOwnLines) {
  add("a", 100);
  add("b", 1);
  EXPECT_EQ(lines.back(), "line of b");
  complaints.reset();
  EXPECT_EQ(lines.back(), "... and 95 more from a in the last 10.0 s");
}

TEST_F(ComplaintsTest, ThousandsOfAddressesShareOneEntry) {
  for (int i = 0; i < 5000; ++i) add("address " + std::to_string(i), 2);
  complaints.reset();
  EXPECT_LE(lines.size(), 2 * Complaints::kAddresses + Complaints::kLines + 1);
  EXPECT_EQ(lines.back(), "... and 9963 more from other addresses in the last 10.0 s");
}

}  // namespace
}  // namespace trireme::net::complaints_test
