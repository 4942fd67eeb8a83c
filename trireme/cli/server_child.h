// The process of a server that a measurement on this host talks to.
#pragma once
#include <sys/types.h>
#include <functional>
#include <span>
#include <vector>

namespace trireme::cli {

// The process ends with its parent, and with this object.
class ServerChild {
 public:
  // The child tells the ports at which it serves, once, by this function.
  using TellPorts = std::function<void(std::span<const int> ports)>;

  // Forks, so no other thread may run. The child calls `serve`, which returns only if it fails,
  // and writes its exception to standard error. Waits until the child has told as many ports as
  // `ports`; throws Error(peer_lost) if it ends before, and Error(io) if there can be no process.
  ServerChild(size_t ports, const std::function<void(const TellPorts&)>& serve);
  ~ServerChild();
  ServerChild(const ServerChild&) = delete;
  ServerChild& operator=(const ServerChild&) = delete;

  int port(size_t index = 0) const { return ports_[index]; }
  // The CPU time of this process and the server's.
  double cpu_seconds_of_both() const;

 private:
  void end() noexcept;

  pid_t pid_ = -1;
  std::vector<int> ports_;
};

}  // namespace trireme::cli
