// Ranks that are threads of one process. Collectives run CollectivePlans, and read the other
// ranks' tensors directly.
#pragma once
#include <trireme/comm/group.h>
#include <trireme/plan/collective_table.h>
#include <memory>
#include <string>
#include <vector>

namespace trireme::comm {

struct ThreadGroupOptions {
  plan::CollectiveTable table;  // Chooses the plan of each call by its size, for path "threads".
  // [rank]: plans as if threads lay on these hosts. If empty, they do not.
  std::vector<int> hosts;
  Milliseconds timeout{60000};
};

// Makes one Group for each rank 0..size-1. Give one to each thread.
std::vector<std::shared_ptr<Group>> make_thread_groups(int size,
                                                       const ThreadGroupOptions& options);

}  // namespace trireme::comm
