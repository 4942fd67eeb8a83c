// Gives a process that has the task of a lost server what the server had, where workers meet.
#pragma once
#include <trireme/base/deadline.h>
#include <trireme/comm/group.h>
#include <trireme/parallel/servers/server_client.h>
#include <chrono>
#include <functional>
#include <optional>

namespace trireme {

class ServerRestorer {
 public:
  using FindAgain = std::function<std::optional<ServerPlace>(int server)>;
  explicit ServerRestorer(FindAgain find_again) : find_again_(std::move(find_again)) {}

  // Whether a server that is missing can be restored. It asks now and then; cheap.
  bool finds_one(const ServerClient& client);
  // COLLECTIVE, while no worker pushes. Restores those that can be. A process that is lost again
  // meanwhile stays missing.
  void restore(ServerClient& client, Group& group, Deadline deadline);

 private:
  const FindAgain find_again_;
  std::chrono::steady_clock::time_point next_look_{};
};

// COLLECTIVE, while no worker pushes. All ranks use the servers that rank 0 uses. `before` runs on
// rank 0 first; may be null.
void use_those_of_first(ServerClient& client, Group& group, Deadline deadline,
                        const std::function<void()>& before = {});

}  // namespace trireme
