#include <trireme/launch/restarts.h>

#include <gtest/gtest.h>

namespace trireme::launch::restarts_test {
namespace {

using namespace std::chrono_literals;

TEST(Restarts, TheFirstEarlyDeathIsReplacedAtOnceAndLaterOnesAfterPauses) {
  Restarts restarts;
  EXPECT_EQ(restarts.after(true, 1s), 0ms);
  EXPECT_EQ(restarts.after(true, 1s), 1000ms);
  EXPECT_EQ(restarts.after(false, 60s), 2000ms);  // It never joined.
  EXPECT_EQ(restarts.after(true, 1s), 4000ms);
  EXPECT_EQ(restarts.after(true, 1s), std::nullopt);
}

TEST(Restarts, ALongLifeForgetsEarlyDeaths) {
  Restarts restarts;
  for (int i = 0; i < 100; ++i) {
    EXPECT_EQ(restarts.after(true, 60s), 0ms);
    EXPECT_EQ(restarts.after(true, 1s), 0ms);
  }
}

}  // namespace
}  // namespace trireme::launch::restarts_test
