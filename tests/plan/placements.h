// Placements on several hosts, for tests of plans.
#pragma once
#include <trireme/plan/placement.h>
#include <string>
#include <vector>

namespace trireme::plan {

// Hosts with these numbers of ranks; neighbours share a host. A host of one rank has nothing to
// carry.
inline Placement on_hosts(const std::vector<int>& sizes, const std::string& inside,
                          const std::string& between) {
  Placement placement;
  Carrier leaders{between, {}, {}};
  for (size_t host = 0; host < sizes.size(); ++host) {
    leaders.ranks.push_back(placement.ranks());
    leaders.hosts.push_back(static_cast<int>(host));
    placement.inside.push_back({sizes[host] > 1 ? inside : "threads", {}, {}});
    for (int i = 0; i < sizes[host]; ++i) {
      placement.inside.back().ranks.push_back(placement.ranks());
      placement.hosts.push_back(static_cast<int>(host));
    }
  }
  if (sizes.size() > 1) placement.between = leaders;
  return placement;
}

}  // namespace trireme::plan
