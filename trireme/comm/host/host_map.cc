#include <fmt/format.h>
#include <sys/stat.h>
#include <trireme/comm/host/host_map.h>
#include <unistd.h>
#include <algorithm>
#include <fstream>

namespace trireme::comm {

int HostMap::host_of(int worker) const {
  for (size_t host = 0; host < hosts.size(); ++host)
    if (std::find(hosts[host].begin(), hosts[host].end(), worker) != hosts[host].end())
      return static_cast<int>(host);
  return -1;
}

std::string place_of_this_process(const std::string& label) {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string boot;
  std::getline(file, boot);
  struct stat network {};
  stat("/proc/self/ns/net", &network);
  return fmt::format("{} {} {} {}", boot, network.st_ino, geteuid(), label);
}

HostMap each_alone(int workers) {
  HostMap map;
  for (int worker = 0; worker < workers; ++worker) map.hosts.push_back({worker});
  return map;
}

HostMap find_hosts(membership::Member& member, int worker, int workers, const std::string& place,
                   Deadline deadline) {
  member.set(fmt::format("place/{}", worker), place);
  HostMap map;
  std::vector<std::string> places;
  for (int other = 0; other < workers; ++other) {
    const std::string theirs =
        other == worker ? place : member.get(fmt::format("place/{}", other), deadline);
    const auto known = std::find(places.begin(), places.end(), theirs);
    if (known == places.end()) {
      places.push_back(theirs);
      map.hosts.push_back({other});
    } else {
      map.hosts[static_cast<size_t>(known - places.begin())].push_back(other);
    }
  }
  return map;
}

std::vector<std::shared_ptr<HostTeam>> meet_on_host(
    const std::shared_ptr<membership::Member>& member, const std::string& name,
    HostMeeting meeting) {
  meeting.publish = [member, name](const std::string& value) { member->set(name, value); };
  meeting.look_up = [member, name](Deadline deadline) { return member->get(name, deadline); };
  meeting.throw_if_lost = [member] { member->throw_if_lost(); };
  return join_host_teams(meeting, static_cast<int>(meeting.ranks.size()));
}

}  // namespace trireme::comm
