#include <gtest/gtest.h>

#include <trireme/launch/end_watch.h>

namespace trireme::launch::end_watch_test {
namespace {

TEST(EndWatch, EndsSoonWhileItLooksForTheCoordinatorInEtcd) {
  const net::EtcdUrl silent{{{"127.0.0.1", 1}}, "job"};  // Nothing listens there.
  const auto began = Deadline::Clock::now();
  { const EndWatch watch({}, silent, "token", Milliseconds(8000)); }
  EXPECT_LT(Deadline::Clock::now() - began, std::chrono::seconds(4));
}

}  // namespace
}  // namespace trireme::launch::end_watch_test
