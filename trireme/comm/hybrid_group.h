// Ranks that are threads of several processes: threads meet first, then one leader a process, then the threads again.
#pragma once
#include <trireme/comm/group.h>
#include <memory>
#include <vector>

namespace trireme::comm {

// `threads`: the local ranks' groups, in order; `leaders`: this process's place among the processes (all have equally many threads).
// Global rank = process * threads + thread. Returns one group per local rank.
std::vector<std::shared_ptr<Group>> make_hybrid_groups(std::vector<std::shared_ptr<Group>> threads, std::shared_ptr<Group> leaders);

}  // namespace trireme::comm
