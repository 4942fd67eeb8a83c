// A port for a server that a test starts, and may start again.
#pragma once
#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <unistd.h>
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>

namespace trireme::net {

// The ports that the kernel gives to nobody who asks for any port. Where it keeps too few back,
// they are all that a programme may take.
struct KeptPorts {
  int from = 1024, count = 65536 - 1024;
};
inline KeptPorts kept_ports() {
  // Services have ports below the first. Above the last are those of torchrun.
  constexpr int kFirst = 10'000, kLast = 29'000, kEnough = 1000;
  int low = 0, high = 0;
  std::ifstream("/proc/sys/net/ipv4/ip_local_port_range") >> low >> high;
  low = std::min(low, kLast);
  if (low - kFirst >= kEnough) return {kFirst, low - kFirst};
  if (high > 0 && 65536 - (high + 1) >= kEnough) return {high + 1, 65536 - (high + 1)};
  return {};
}

inline bool is_free(int port) {
  const int probe = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(static_cast<uint16_t>(port));
  const bool is_bound = ::bind(probe, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0;
  ::close(probe);
  return is_bound;
}

// Returns a port of loopback for a server that must be told its port. Until this process ends no
// other socket gets it by chance: the kernel gives it to nobody, and tests that take such ports
// lock them (tests/system/support.py does the same).
inline int free_port() {
  static int taken = 0;
  const KeptPorts ports = kept_ports();
  const std::filesystem::path locks =
      std::filesystem::temp_directory_path() / "trireme-test-ports";
  std::error_code is_there;
  std::filesystem::create_directory(locks, is_there);
  std::filesystem::permissions(locks, std::filesystem::perms::all, is_there);
  for (int tried = 0; tried < ports.count; ++tried) {
    const int port = ports.from + (::getpid() * 37 + taken++) % ports.count;
    const int lock =
        ::open((locks / std::to_string(port)).c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (lock < 0) continue;
    // The lock lasts as long as the process.
    if (::flock(lock, LOCK_EX | LOCK_NB) == 0 && is_free(port)) return port;
    ::close(lock);
  }
  ADD_FAILURE() << "no port is free";
  return 0;
}

}  // namespace trireme::net
