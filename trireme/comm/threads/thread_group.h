// Ranks that are threads of one process. Collectives run from CollectivePlans, reading the other ranks' tensors directly.
#pragma once
#include <trireme/comm/group.h>
#include <trireme/plan/collective_plan.h>
#include <memory>
#include <string>
#include <vector>

namespace trireme::comm {

struct ThreadGroupOptions {
  plan::Algorithm all_reduce = plan::Algorithm::direct;
  Milliseconds timeout{60000};
};

// One Group for each rank 0..size-1; hand one to each thread.
std::vector<std::shared_ptr<Group>> make_thread_groups(int size, const ThreadGroupOptions& options);

}  // namespace trireme::comm
