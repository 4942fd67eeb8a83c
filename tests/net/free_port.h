// A free port for a server that a test starts.
#pragma once
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

namespace trireme::net {

// Returns a port of loopback that was free a moment ago. Use it for a server that must be told its
// port.
inline int free_port() {
  const int probe = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  EXPECT_EQ(::bind(probe, reinterpret_cast<sockaddr*>(&address), size), 0);
  EXPECT_EQ(::getsockname(probe, reinterpret_cast<sockaddr*>(&address), &size), 0);
  ::close(probe);
  return ntohs(address.sin_port);
}

}  // namespace trireme::net
