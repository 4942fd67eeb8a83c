#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <trireme/base/deadline.h>
#include <trireme/comm/tcp/link.h>
#include <utility>

namespace trireme::comm::tcp_link_test {
namespace {

// The two ends of a connection over loopback.
std::pair<Descriptor, Descriptor> connected() {
  const Descriptor listener(::socket(AF_INET, SOCK_STREAM, 0));
  sockaddr_in address{
      .sin_family = AF_INET, .sin_port = 0, .sin_addr = {htonl(INADDR_LOOPBACK)}, .sin_zero = {}};
  socklen_t length = sizeof address;
  EXPECT_EQ(::bind(listener.get(), reinterpret_cast<sockaddr*>(&address), length), 0);
  EXPECT_EQ(::listen(listener.get(), 1), 0);
  EXPECT_EQ(::getsockname(listener.get(), reinterpret_cast<sockaddr*>(&address), &length), 0);
  Descriptor one(::socket(AF_INET, SOCK_STREAM, 0));
  EXPECT_EQ(::connect(one.get(), reinterpret_cast<sockaddr*>(&address), length), 0);
  Descriptor two(::accept(listener.get(), nullptr, nullptr));
  return {std::move(one), std::move(two)};
}

void send_bytes(const Descriptor& socket, size_t count) {
  const std::vector<std::byte> bytes(count);
  EXPECT_EQ(::send(socket.get(), bytes.data(), count, MSG_NOSIGNAL), static_cast<ssize_t>(count));
}

void wait_until_arrived(int descriptor, int count) {
  int arrived = 0;
  for (const Deadline deadline = Deadline::after(Milliseconds(5000));
       arrived < count && !deadline.expired(); ::poll(nullptr, 0, 1))
    ASSERT_EQ(::ioctl(descriptor, FIONREAD, &arrived), 0);
  ASSERT_EQ(arrived, count);
}

bool is_readable(const Link& link) {
  pollfd wait{link.descriptor(), POLLIN, 0};
  return ::poll(&wait, 1, 0) == 1;
}

TEST(PatientLink, LetsManyBytesArriveTogether) {
  auto [theirs, mine] = connected();
  Link link(std::move(mine));
  std::vector<std::byte> place(1 << 20);
  Incoming incoming(place.data(), place.size());
  link.receive(incoming);
  send_bytes(theirs, 100);
  wait_until_arrived(link.descriptor(), 100);
  EXPECT_TRUE(is_readable(link));
  link.be_patient(true);
  EXPECT_FALSE(is_readable(link));
  link.be_patient(false);
  EXPECT_TRUE(is_readable(link));
}

TEST(PatientLink, DoesNotWaitForMoreThanTheExpectedBytes) {
  auto [theirs, mine] = connected();
  Link link(std::move(mine));
  std::vector<std::byte> place(100);
  Incoming incoming(place.data(), place.size());
  link.receive(incoming);
  send_bytes(theirs, 60);
  wait_until_arrived(link.descriptor(), 60);
  link.be_patient(true);
  EXPECT_TRUE(is_readable(link));
}

TEST(PatientLink, NoticesTheEndOfTheConnectionAtOnce) {
  auto [theirs, mine] = connected();
  Link link(std::move(mine));
  std::vector<std::byte> place(1 << 20);
  Incoming incoming(place.data(), place.size());
  link.receive(incoming);
  link.be_patient(true);
  theirs = Descriptor();
  pollfd wait{link.descriptor(), POLLIN, 0};
  EXPECT_EQ(::poll(&wait, 1, 5000), 1);
}

}  // namespace
}  // namespace trireme::comm::tcp_link_test
