#include <fmt/format.h>
#include <trireme/comm/gloo/gloo_group.h>
#include <trireme/comm/group_layout.h>
#include <trireme/comm/group_maker.h>
#include <trireme/comm/host/shm_group.h>
#include <trireme/comm/hybrid_group.h>
#include <trireme/comm/mpi/mpi_group.h>
#include <trireme/comm/nccl/nccl_group.h>
#include <trireme/comm/tcp/tcp_group.h>
#include <trireme/comm/threads/thread_group.h>
#include <algorithm>

namespace trireme::comm {
namespace {

using GroupsOfProcess = std::vector<std::shared_ptr<Group>>;

// Joins processes that have no memory in common. `members`: [rank of the carrier]: its worker.
std::shared_ptr<Group> make_carrier(const GroupSite& site, const std::string& name,
                                    const std::vector<int>& members) {
  const int rank =
      static_cast<int>(std::find(members.begin(), members.end(), site.worker) - members.begin());
  const int size = static_cast<int>(members.size());
  if (site.carrier == "tcp")
    return make_tcp_group(site.member, rank, members,
                          {.name = name,
                           .address = site.address,
                           .token = site.token,
                           .plans = site.table,
                           .timeout = site.timeout});
  if (site.carrier == "mpi") return make_mpi_group(site.member, rank, members, site.timeout);
  if (site.carrier == "nccl")
    return make_nccl_group(site.member, rank, size,
                           {.name = name, .device = site.local_worker, .timeout = site.timeout});
  GlooOptions gloo;
  gloo.name = name;
  gloo.address = site.address;
  gloo.timeout = site.timeout;
  return make_gloo_group(site.member, rank, size, gloo);
}

// The groups of this process's ranks over the ranks of its host.
GroupsOfProcess make_local(const GroupSite& site, const GroupLayout& layout,
                           const std::string& name) {
  const std::vector<int> mine = layout.ranks_of(site.worker);
  const int host = layout.host_of(site.worker);
  const std::vector<int>& here = layout.hosts[static_cast<size_t>(host)];
  if (mine.size() == here.size())
    return make_thread_groups(static_cast<int>(mine.size()),
                              {.table = site.table, .timeout = site.timeout});
  HostMeeting meeting;
  meeting.timeout = site.timeout;
  meeting.size = static_cast<int>(here.size());
  std::vector<int> processes;  // In the order of their first ranks.
  for (int place = 0; place < meeting.size; ++place) {
    const int process = layout.process_of[static_cast<size_t>(here[static_cast<size_t>(place)])];
    if (std::find(processes.begin(), processes.end(), process) == processes.end())
      processes.push_back(process);
    if (layout.workers[static_cast<size_t>(process)] == site.worker) {
      meeting.ranks.push_back(place);
      meeting.process = static_cast<int>(std::find(processes.begin(), processes.end(), process) -
                                         processes.begin());
    }
  }
  meeting.processes = static_cast<int>(processes.size());
  return make_shm_groups(
      meet_on_host(site.member, fmt::format("{}/host/{}", name, host), std::move(meeting)),
      {.table = site.table, .timeout = site.timeout});
}

// One group for each rank of this process, in the order of its ranks. Processes of one host use
// shared memory, and one leader of each host speaks with the other hosts.
GroupsOfProcess make_of_process(const GroupSite& site, const GroupLayout& layout,
                                const std::string& name) {
  HybridParts parts;
  parts.local = make_local(site, layout, name);
  if (layout.hosts.size() == 1) return parts.local;

  const bool alone_on_each = layout.hosts.size() == layout.workers.size();
  parts.processes = make_carrier(site, name, layout.workers);
  if (layout.ranks.size() == layout.workers.size() && alone_on_each) return {parts.processes};
  parts.host = layout.host_of(site.worker);
  std::vector<int> leaders;
  for (const auto& ranks : layout.hosts)
    leaders.push_back(
        layout
            .workers[static_cast<size_t>(layout.process_of[static_cast<size_t>(ranks.front())])]);
  if (alone_on_each)
    parts.leaders = parts.processes;
  else if (leaders[static_cast<size_t>(parts.host)] == site.worker)
    parts.leaders = make_carrier(site, name + "-leaders", leaders);
  parts.ranks = layout.hosts;
  parts.process_of = layout.process_of;
  parts.thread_of = layout.thread_of;
  return make_hybrid_groups(std::move(parts));
}

}  // namespace

std::vector<std::shared_ptr<Group>> make_groups(const GroupSite& site,
                                                const std::vector<int>& ranks,
                                                const std::string& name) {
  const GroupLayout layout(ranks, site.replicas, site.hosts);
  GroupsOfProcess by_replica(static_cast<size_t>(site.replicas));
  if (layout.ranks_of(site.worker).empty()) return by_replica;
  for (auto& group : make_of_process(site, layout, name)) {
    const int rank = ranks[static_cast<size_t>(group->rank())];
    by_replica[static_cast<size_t>(rank % site.replicas)] = std::move(group);
  }
  return by_replica;
}

}  // namespace trireme::comm
