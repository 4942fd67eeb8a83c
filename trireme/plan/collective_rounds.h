// The parts of which collective_algorithms.cc builds the algorithms. Each function appends rounds
// to a plan whose chunks and world size are set. Internal to plan/.
#pragma once
#include <trireme/plan/collective_plan.h>
#include <vector>

namespace trireme::plan {

using Round = std::vector<RankRound>;  // [rank]

Round& add_round(CollectivePlan& plan);
// Writes both views of a transfer: the receive, and a send for every other source.
void add_transfer(Round& round, int receiver, int chunk, std::vector<int> sources);
// Adds a transfer for each of the chunks first..last-1, all from the same sources.
void add_transfers(Round& round, int receiver, int first, int last,
                   const std::vector<int>& sources);
std::vector<int> numbers_below(int n);  // 0..n-1

// Every rank exchanges with every other rank (collective_direct.cc).
void add_naive_all_reduce(CollectivePlan& plan);
void add_naive_broadcast(CollectivePlan& plan);
void add_direct_reduce_scatter(CollectivePlan& plan);
void add_direct_all_gather(CollectivePlan& plan);
void add_direct_all_to_all(CollectivePlan& plan);

// The ranks exchange along the ring of `ranks`. blocks[i] are the chunks that end on ranks[i]
// (reduce-scatter) or start there (all-gather). (collective_ring.cc)
using Blocks = std::vector<std::vector<int>>;
void add_ring_reduce_scatter(CollectivePlan& plan, const std::vector<int>& ranks,
                             const Blocks& blocks);
void add_ring_all_gather(CollectivePlan& plan, const std::vector<int>& ranks,
                         const Blocks& blocks);
void add_chain_broadcast(CollectivePlan& plan);

// The ranks exchange with partners at distances that are powers of two (collective_doubling.cc).
void add_recursive_doubling_all_reduce(CollectivePlan& plan);
void add_recursive_doubling_all_gather(CollectivePlan& plan);
void add_recursive_halving_reduce_scatter(CollectivePlan& plan);
void add_halving_doubling_all_reduce(CollectivePlan& plan);
int largest_power_of_two(int n);  // The largest power of two that is at most n.

// The ranks exchange along the binomial tree of `ranks`; the first of them is
// its root (collective_tree.cc).
void add_tree_reduce(CollectivePlan& plan, const std::vector<int>& ranks);
void add_tree_broadcast(CollectivePlan& plan, const std::vector<int>& ranks);

// The ranks exchange inside hosts, then the leaders of the hosts, then the ranks
// inside hosts (collective_hierarchical.cc).
void add_hierarchical(CollectivePlan& plan);
// [host]: its ranks, the leader first. The leader is the lowest rank, or the root of a broadcast.
// The hosts are in the order of their lowest rank; the host of a broadcast's root comes first.
std::vector<std::vector<int>> ranks_by_host(const CollectivePlan& plan);

}  // namespace trireme::plan
