// Ranks on several hosts. Each host uses a backend of its own inside, and one leader per host
// exchanges with the other hosts.
#pragma once
#include <trireme/comm/group.h>
#include <memory>
#include <vector>

namespace trireme::comm {

struct HybridParts {
  // The ranks of the group by host, in ascending order; the hosts are in the order of
  // their first rank.
  std::vector<std::vector<int>> ranks;
  int host = 0;  // The host of this process.
  // The groups over the ranks of this host: one for each rank of this process, in order.
  std::vector<std::shared_ptr<Group>> local;
  std::shared_ptr<Group> leaders;    // Over hosts. Set only if local[0] is rank 0 of its host.
  std::shared_ptr<Group> processes;  // Over all processes, for messages between hosts.
  // [rank]: its process in `processes`, and its number among the group's ranks of that process.
  std::vector<int> process_of, thread_of;
};
// Makes one group for each rank of this process.
std::vector<std::shared_ptr<Group>> make_hybrid_groups(HybridParts parts);

}  // namespace trireme::comm
