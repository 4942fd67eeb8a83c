#include <trireme/plan/neighbours.h>
#include <algorithm>
#include <map>

namespace trireme::plan {

int distance_of_neighbours(std::span<const int> hosts) {
  if (hosts.size() < 2) return 0;
  std::map<int, int> ranks_of;
  for (const int host : hosts) ++ranks_of[host];
  if (ranks_of.size() == 1) return 1;
  int most = 0;
  for (const auto& [host, ranks] : ranks_of) most = std::max(most, ranks);
  return std::min(most, static_cast<int>(hosts.size()) - 1);
}

}  // namespace trireme::plan
