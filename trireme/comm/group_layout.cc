#include <trireme/comm/group_layout.h>
#include <algorithm>
#include <map>

namespace trireme::comm {
namespace {

// The index of `value` in `values`, where it is put last if it is missing.
int index_of(std::vector<int>& values, int value) {
  const auto found = std::find(values.begin(), values.end(), value);
  const auto index = static_cast<int>(found - values.begin());
  if (found == values.end()) values.push_back(value);
  return index;
}

}  // namespace

GroupLayout::GroupLayout(const std::vector<int>& members, int replicas, const HostMap& map)
    : ranks(members) {
  std::vector<int> numbers;  // Of hosts in `map`.
  std::map<int, int> threads;
  for (int rank = 0; rank < static_cast<int>(ranks.size()); ++rank) {
    const int worker = ranks[static_cast<size_t>(rank)] / replicas;
    process_of.push_back(index_of(workers, worker));
    thread_of.push_back(threads[worker]++);
    const auto host = static_cast<size_t>(index_of(numbers, map.host_of(worker)));
    if (host == hosts.size()) hosts.emplace_back();
    hosts[host].push_back(rank);
  }
}

int GroupLayout::host_of(int worker) const {
  const std::vector<int> mine = ranks_of(worker);
  for (size_t host = 0; !mine.empty() && host < hosts.size(); ++host)
    if (std::find(hosts[host].begin(), hosts[host].end(), mine.front()) != hosts[host].end())
      return static_cast<int>(host);
  return -1;
}

std::vector<int> GroupLayout::ranks_of(int worker) const {
  std::vector<int> mine;
  for (size_t rank = 0; rank < ranks.size(); ++rank)
    if (workers[static_cast<size_t>(process_of[rank])] == worker)
      mine.push_back(static_cast<int>(rank));
  return mine;
}

}  // namespace trireme::comm
