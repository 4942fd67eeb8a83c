// The pieces that the algorithms of collective_algorithms.cc are made of. Each appends rounds to a
// plan whose chunks and world size are set. Internal to plan/.
#pragma once
#include <trireme/plan/collective_plan.h>
#include <vector>

namespace trireme::plan {

using Round = std::vector<RankRound>;  // [rank]

Round& add_round(CollectivePlan& plan);
// Writes both views of a transfer: the receiver's, and a send of every other source.
void add_transfer(Round& round, int receiver, int chunk, std::vector<int> sources);
// The chunks first..last-1, each from the same sources.
void add_transfers(Round& round, int receiver, int first, int last,
                   const std::vector<int>& sources);
std::vector<int> numbers_below(int n);  // 0..n-1

// Everybody with everybody (collective_direct.cc).
void add_naive_all_reduce(CollectivePlan& plan);
void add_naive_broadcast(CollectivePlan& plan);
void add_direct_reduce_scatter(CollectivePlan& plan);
void add_direct_all_gather(CollectivePlan& plan);

// Along the ring of `ranks`; blocks[i] are the chunks that end (start) on ranks[i]
// (collective_ring.cc).
using Blocks = std::vector<std::vector<int>>;
void add_ring_reduce_scatter(CollectivePlan& plan, const std::vector<int>& ranks,
                             const Blocks& blocks);
void add_ring_all_gather(CollectivePlan& plan, const std::vector<int>& ranks, const Blocks& blocks);
void add_chain_broadcast(CollectivePlan& plan);

// With a partner at a distance that is a power of two (collective_doubling.cc).
void add_recursive_doubling_all_reduce(CollectivePlan& plan);
void add_recursive_doubling_all_gather(CollectivePlan& plan);
void add_recursive_halving_reduce_scatter(CollectivePlan& plan);
void add_halving_doubling_all_reduce(CollectivePlan& plan);
int largest_power_of_two(int n);  // At most n.

// Along the binomial tree of `ranks`, whose first is its root (collective_tree.cc).
void add_tree_reduce(CollectivePlan& plan, const std::vector<int>& ranks);
void add_tree_broadcast(CollectivePlan& plan, const std::vector<int>& ranks);

// Inside hosts, between their leaders, inside hosts (collective_hierarchical.cc).
void add_hierarchical(CollectivePlan& plan);
// [host]: its ranks, the leader first: the lowest, or the root of a broadcast. Hosts in the order
// of their lowest rank, that of a broadcast's root first.
std::vector<std::vector<int>> ranks_by_host(const CollectivePlan& plan);

}  // namespace trireme::plan
