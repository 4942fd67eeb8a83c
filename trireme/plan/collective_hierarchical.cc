#include <trireme/plan/collective_rounds.h>
#include <algorithm>

namespace trireme::plan {
namespace {

using Hosts = std::vector<std::vector<int>>;  // [host]: its ranks, the leader first.

bool some_host_has_several(const Hosts& hosts) {
  return std::any_of(hosts.begin(), hosts.end(),
                     [](const auto& ranks) { return ranks.size() > 1; });
}

std::vector<int> leaders_of(const Hosts& hosts) {
  std::vector<int> leaders;
  for (const auto& ranks : hosts) leaders.push_back(ranks.front());
  return leaders;
}

// Cuts the chunk numbers into `parts` runs, equal to within one, and returns run `part`.
std::vector<int> run_of(int chunks, int part, int parts) {
  std::vector<int> run;
  for (int chunk = chunks * part / parts; chunk < chunks * (part + 1) / parts; ++chunk)
    run.push_back(chunk);
  return run;
}

// Every rank of a host adds up a run of chunks over the host; then the leader collects them.
void add_sum_inside(CollectivePlan& plan, const Hosts& hosts) {
  if (!some_host_has_several(hosts)) return;
  const size_t first = plan.rounds.size();
  add_round(plan);
  add_round(plan);
  for (const auto& ranks : hosts) {
    const int count = static_cast<int>(ranks.size());
    if (count == 1) continue;
    for (int part = 0; part < count; ++part) {
      const int rank = ranks[static_cast<size_t>(part)];
      for (const int chunk : run_of(plan.chunks, part, count)) {
        add_transfer(plan.rounds[first], rank, chunk, ranks);
        if (part > 0) add_transfer(plan.rounds[first + 1], ranks.front(), chunk, {rank});
      }
    }
  }
}

// The other ranks of a host take the chunks with `wanted(rank, chunk)` from their leader.
template <typename Wanted>
void add_copies_from_leaders(CollectivePlan& plan, const Hosts& hosts, Wanted wanted) {
  if (!some_host_has_several(hosts)) return;
  Round& round = add_round(plan);
  for (const auto& ranks : hosts) {
    for (size_t place = 1; place < ranks.size(); ++place) {
      for (int chunk = 0; chunk < plan.chunks; ++chunk) {
        if (wanted(ranks[place], chunk)) add_transfer(round, ranks[place], chunk, {ranks.front()});
      }
    }
  }
}

void add_chunks_to_leaders(CollectivePlan& plan, const Hosts& hosts) {
  if (!some_host_has_several(hosts)) return;
  Round& round = add_round(plan);
  for (const auto& ranks : hosts) {
    for (size_t place = 1; place < ranks.size(); ++place)
      add_transfer(round, ranks.front(), ranks[place], {ranks[place]});
  }
}

// Cuts the chunks evenly among the leaders, where any leader may own any chunk.
Blocks even_blocks(const CollectivePlan& plan, const Hosts& hosts) {
  Blocks blocks;
  const int count = static_cast<int>(hosts.size());
  for (int host = 0; host < count; ++host) blocks.push_back(run_of(plan.chunks, host, count));
  return blocks;
}

}  // namespace

std::vector<std::vector<int>> ranks_by_host(const CollectivePlan& plan) {
  std::vector<int> order = numbers_below(plan.world_size);
  if (plan.collective == Collective::broadcast)
    std::rotate(order.begin(), order.begin() + plan.root, order.begin() + plan.root + 1);
  std::vector<int> known;
  Hosts hosts;
  for (const int rank : order) {
    const int host = plan.hosts.empty() ? 0 : plan.hosts[static_cast<size_t>(rank)];
    const auto found = std::find(known.begin(), known.end(), host);
    if (found == known.end()) {
      known.push_back(host);
      hosts.push_back({rank});
    } else {
      hosts[static_cast<size_t>(found - known.begin())].push_back(rank);
    }
  }
  return hosts;
}

void add_hierarchical(CollectivePlan& plan) {
  const Hosts hosts = ranks_by_host(plan);
  const std::vector<int> leaders = leaders_of(hosts);
  const bool one_host = hosts.size() == 1;  // A single host needs no leader.
  switch (plan.collective) {
    case Collective::all_reduce: {
      if (one_host) return add_direct_reduce_scatter(plan), add_direct_all_gather(plan);
      const Blocks blocks = even_blocks(plan, hosts);
      add_sum_inside(plan, hosts);
      add_ring_reduce_scatter(plan, leaders, blocks);
      add_ring_all_gather(plan, leaders, blocks);
      return add_copies_from_leaders(plan, hosts, [](int, int) { return true; });
    }
    case Collective::reduce_scatter:
      if (one_host) return add_direct_reduce_scatter(plan);
      add_sum_inside(plan, hosts);
      add_ring_reduce_scatter(plan, leaders, hosts);  // A host's chunks are those of its ranks.
      return add_copies_from_leaders(plan, hosts,
                                     [](int rank, int chunk) { return chunk == rank; });
    case Collective::all_gather:
      if (one_host) return add_direct_all_gather(plan);
      add_chunks_to_leaders(plan, hosts);
      add_ring_all_gather(plan, leaders, hosts);
      return add_copies_from_leaders(plan, hosts,
                                     [](int rank, int chunk) { return chunk != rank; });
    case Collective::broadcast:
      add_tree_broadcast(plan, leaders);
      return add_copies_from_leaders(plan, hosts, [](int, int) { return true; });
    case Collective::all_to_all: return add_direct_all_to_all(plan);
  }
}

}  // namespace trireme::plan
