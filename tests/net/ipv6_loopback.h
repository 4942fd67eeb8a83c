// Whether this machine has the IPv6 loopback address ::1, for tests that use it.
#pragma once
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

namespace trireme::net {

inline bool has_ipv6_loopback() {
  const int descriptor = ::socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (descriptor < 0) return false;
  sockaddr_in6 address{};
  address.sin6_family = AF_INET6;
  address.sin6_addr = in6addr_loopback;
  const bool has =
      ::bind(descriptor, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
  ::close(descriptor);
  return has;
}

}  // namespace trireme::net

#define TRIREME_SKIP_WITHOUT_IPV6() \
  if (!trireme::net::has_ipv6_loopback()) GTEST_SKIP() << "this machine has no address ::1"
