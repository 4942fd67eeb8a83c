// Ranks of one host over shared memory: processes, or threads of processes.
#pragma once
#include <trireme/comm/group.h>
#include <trireme/comm/host/host_team.h>
#include <memory>
#include <vector>

namespace trireme::comm {

// COLLECTIVE over the teams' host: one group for each of this process's ranks. Ordinary tensors pass through staging memory in pieces that
// stay in the caches; those made by shared_tensor() are reduced where they lie.
std::vector<std::shared_ptr<Group>> make_shm_groups(const std::vector<std::shared_ptr<HostTeam>>& teams, Milliseconds timeout);

}  // namespace trireme::comm
