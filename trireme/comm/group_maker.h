// Makes groups of all or some ranks of a world from the carriers of its processes: shared memory
// where ranks share a host, and a carrier between hosts.
#pragma once
#include <trireme/comm/group.h>
#include <trireme/comm/host/host_map.h>
#include <trireme/plan/collective_table.h>
#include <memory>
#include <string>
#include <vector>

namespace trireme::comm {

// The part of a process in the groups that it makes.
struct GroupSite {
  std::shared_ptr<membership::Member> member;  // Null if the process is alone.
  int worker = 0, replicas = 1;
  int local_worker = 0;  // The GPU that NCCL uses.
  HostMap hosts;         // The workers by shared memory.
  std::string carrier;   // Between processes that share none: tcp, gloo, mpi or nccl.
  std::string address, token;
  plan::CollectiveTable table;
  Milliseconds timeout{60000};
};

// COLLECTIVE over the workers of `ranks`; the others return at once. Rank i of the group is rank
// ranks[i] of the world. Returns the group of each replica of this worker; null if it is not in
// the group. No other group of the generation may have the same `name`.
std::vector<std::shared_ptr<Group>> make_groups(const GroupSite& site,
                                                const std::vector<int>& ranks,
                                                const std::string& name);

}  // namespace trireme::comm
