// The processes and hosts of the ranks of a group, which may be some of the ranks of the world.
#pragma once
#include <trireme/comm/host/host_map.h>
#include <vector>

namespace trireme::comm {

// The ranks of the group are numbered 0, 1, ... by their place in `ranks`.
struct GroupLayout {
  // `ranks`: ranks of the world. Each worker has `replicas` of them.
  GroupLayout(const std::vector<int>& ranks, int replicas, const HostMap& map);

  std::vector<int> ranks;               // [rank]: its rank in the world.
  std::vector<int> workers;             // In the order of their first ranks.
  std::vector<int> process_of;          // [rank]: an index in `workers`.
  std::vector<int> thread_of;           // [rank]: its number among the ranks of its process.
  std::vector<std::vector<int>> hosts;  // [host]: its ranks; hosts in the order of first ranks.

  int host_of(int worker) const;                // The index in `hosts`, or -1 if it has no rank.
  std::vector<int> ranks_of(int worker) const;  // The ranks of a worker, in ascending order.
};

}  // namespace trireme::comm
