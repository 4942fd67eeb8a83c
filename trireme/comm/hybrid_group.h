// Ranks on several hosts: inside a host its own carrier, between hosts one leader each.
#pragma once
#include <trireme/comm/group.h>
#include <memory>
#include <vector>

namespace trireme::comm {

struct HybridParts {
  std::vector<std::vector<int>>
      ranks;     // The group's ranks by host; ascending, hosts by their first rank.
  int host = 0;  // This process's.
  std::vector<std::shared_ptr<Group>>
      local;  // Over the ranks of this host: one for each rank of this process, in order.
  std::shared_ptr<Group> leaders;    // Over hosts; only where local[0] is its host's rank 0.
  std::shared_ptr<Group> processes;  // Over all processes, for messages between hosts.
  int ranks_per_process = 1;
};
// One group for each rank of this process.
std::vector<std::shared_ptr<Group>> make_hybrid_groups(HybridParts parts);

}  // namespace trireme::comm
