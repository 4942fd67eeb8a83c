#include <gtest/gtest.h>
#include <trireme/base/deadline.h>
#include <climits>
#include <condition_variable>
#include <mutex>
#include <thread>

namespace trireme::deadline_test {
namespace {

TEST(Deadline, WithAnyWaitLiesInTheFuture) {
  for (const Milliseconds wait : {Milliseconds::max(), Milliseconds::max() / 1000,
                                  Milliseconds(9'999'999'999'000), kLongestWait}) {
    const Deadline deadline = Deadline::after(wait);
    EXPECT_FALSE(deadline.expired()) << wait.count();
    EXPECT_GT(deadline.remaining(), kLongestWait - std::chrono::hours(1));
    EXPECT_EQ(deadline.remaining_as_int(), INT_MAX);
    EXPECT_EQ(deadline.allowed(), wait);
    // A caller can add time to it without overflow.
    EXPECT_GT(deadline.at() + std::chrono::hours(24), deadline.at());
  }
}

TEST(Deadline, WithoutAPositiveWaitHasExpired) {
  for (const Milliseconds wait : {Milliseconds(0), Milliseconds(-1), Milliseconds::min()}) {
    EXPECT_TRUE(Deadline::after(wait).expired()) << wait.count();
    EXPECT_EQ(Deadline::after(wait).remaining(), Milliseconds(0));
    EXPECT_EQ(Deadline::after(wait).remaining_as_int(), 0);
  }
}

TEST(Deadline, HasTimeLeftUntilItHasExpired) {
  const Deadline deadline = Deadline::after(Milliseconds(2));
  for (;;) {
    const Milliseconds left = deadline.remaining();
    if (left > Milliseconds(0)) continue;
    EXPECT_TRUE(deadline.expired());
    break;
  }
}

TEST(Deadline, AWaitForTheLongestTimeEndsWhenItsEventComes) {
  std::mutex mutex;
  std::condition_variable changed;
  bool came = false;
  std::jthread other([&] {
    const std::lock_guard lock(mutex);
    came = true;
    changed.notify_all();
  });
  std::unique_lock lock(mutex);
  EXPECT_TRUE(
      changed.wait_until(lock, Deadline::after(Milliseconds::max()).at(), [&] { return came; }));
}

}  // namespace
}  // namespace trireme::deadline_test
