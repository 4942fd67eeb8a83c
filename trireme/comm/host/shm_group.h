// Ranks of one host over shared memory: processes, or threads of processes.
#pragma once
#include <trireme/comm/group.h>
#include <trireme/comm/host/host_team.h>
#include <trireme/plan/collective_table.h>
#include <memory>
#include <vector>

namespace trireme::comm {

struct ShmGroupOptions {
  // Chooses the plan of each call by its size, for path "shm"; the same on every rank.
  plan::CollectiveTable table;
  Milliseconds timeout{60000};
  // Whether receivers read large messages in the sender's memory, where the system allows it.
  bool reads_peers = true;
};

// COLLECTIVE over the teams' host. Makes one group for each rank of this process. Collectives run
// CollectivePlans. Ordinary tensors pass through staging memory in pieces that stay in the caches;
// those made by shared_tensor() are reduced in place.
std::vector<std::shared_ptr<Group>> make_shm_groups(
    const std::vector<std::shared_ptr<HostTeam>>& teams, const ShmGroupOptions& options);

}  // namespace trireme::comm
