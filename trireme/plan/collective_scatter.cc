#include <trireme/plan/collective_scatter.h>
#include <algorithm>

namespace trireme::plan {

ScatterOverHosts::ScatterOverHosts(std::vector<std::vector<int>> hosts, int64_t block)
    : hosts_(std::move(hosts)), others_(hosts_.size()), block_(block) {
  for (size_t host = 0; host < hosts_.size(); ++host) {
    for (size_t other = 0; other < hosts_.size(); ++other)
      if (other != host)
        others_[host].insert(others_[host].end(), hosts_[other].begin(), hosts_[other].end());
    std::sort(others_[host].begin(), others_[host].end());
    const auto blocks = static_cast<int64_t>(others_[host].size());
    const auto ranks = static_cast<int64_t>(hosts_[host].size());
    portions_.push_back((blocks * block + ranks - 1) / ranks);
  }
}

int64_t ScatterOverHosts::start_of(int host, int to) const {
  const std::vector<int>& others = others_of(host);
  return (std::lower_bound(others.begin(), others.end(), to) - others.begin()) * block_;
}

std::pair<int64_t, int64_t> ScatterOverHosts::part(int host, int place, int to) const {
  const int64_t start = start_of(host, to), from = place * portion(host) - start;
  const int64_t first = std::clamp<int64_t>(from, 0, block_);
  return {first, std::clamp<int64_t>(from + portion(host), first, block_)};
}

int64_t ScatterOverHosts::offset(int host, int place, int to) const {
  return start_of(host, to) + part(host, place, to).first - place * portion(host);
}

int64_t ScatterOverHosts::sent_between_hosts(int host, int place) const {
  int64_t sent = 0;
  for (const int to : others_of(host)) {
    const auto [first, last] = part(host, place, to);
    sent += last - first;
  }
  return sent;
}

}  // namespace trireme::plan
