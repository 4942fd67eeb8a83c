// Finds the workers of a job that are on one host, so that they can share memory.
#pragma once
#include <trireme/comm/host/host_team.h>
#include <trireme/membership/member.h>
#include <string>
#include <vector>

namespace trireme::comm {

struct HostMap {
  // The workers of each host, in ascending order; the hosts are in the order of
  // their first worker.
  std::vector<std::vector<int>> hosts;
  int host_of(int worker) const;
  bool one_host() const { return hosts.size() == 1; }
};

// The place of this process. It is equal for processes of one user that see the same kernel and
// the same network name space, and have the same `label`. The label is TRIREME_HOST, with which
// one machine can play several hosts.
std::string place_of_this_process(const std::string& label);
// COLLECTIVE over all workers.
HostMap find_hosts(membership::Member& member, int worker, int workers, const std::string& place,
                   Deadline deadline);
HostMap each_alone(int workers);

// COLLECTIVE over some processes of one host. Returns teams for the ranks of this process:
// `meeting` says which these are, and which process this is. No other meeting of the job may use
// the same `name`.
std::vector<std::shared_ptr<HostTeam>> meet_on_host(
    const std::shared_ptr<membership::Member>& member, const std::string& name,
    HostMeeting meeting);

}  // namespace trireme::comm
