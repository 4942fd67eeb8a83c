#include <trireme/plan/neighbours.h>
#include <algorithm>

namespace trireme::plan {
namespace {

// The ranks whose neighbour at this distance is on their own host.
int pairs_on_one_host(std::span<const int> hosts, size_t distance) {
  int pairs = 0;
  for (size_t rank = 0; rank < hosts.size(); ++rank)
    pairs += hosts[rank] == hosts[(rank + distance) % hosts.size()];
  return pairs;
}

}  // namespace

int distance_of_neighbours(std::span<const int> hosts, int unit) {
  const size_t ranks = hosts.size();
  if (ranks < 2) return 0;
  const size_t step = static_cast<size_t>(unit) < ranks ? static_cast<size_t>(unit) : 1;
  size_t best = step;
  int fewest = pairs_on_one_host(hosts, best);
  for (size_t distance = 2 * step; distance < ranks; distance += step)
    if (const int pairs = pairs_on_one_host(hosts, distance); pairs < fewest)
      best = distance, fewest = pairs;
  return static_cast<int>(best);
}

}  // namespace trireme::plan
