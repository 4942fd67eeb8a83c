#include <fmt/format.h>
#include <fmt/ranges.h>
#include <trireme/base/error.h>
#include <trireme/plan/collective_rounds.h>
#include <algorithm>

namespace trireme::plan {
namespace {

// Appends the rounds of a collective by one algorithm. If the algorithm does not use one chunk per
// rank, the builder first sets the number of chunks.
using Builder = void (*)(CollectivePlan& plan);

void whole(CollectivePlan& plan) { plan.chunks = 1; }

struct Row {
  Collective collective;
  Algorithm algorithm;
  Builder build;
};

std::vector<int> ranks_from_root(const CollectivePlan& plan) {
  std::vector<int> ranks = numbers_below(plan.world_size);
  std::rotate(ranks.begin(), ranks.begin() + plan.root, ranks.end());
  return ranks;
}

Blocks one_chunk_each(const CollectivePlan& plan) {
  Blocks blocks;
  for (int rank = 0; rank < plan.world_size; ++rank) blocks.push_back({rank});
  return blocks;
}

void ring_reduce_scatter(CollectivePlan& plan) {
  add_ring_reduce_scatter(plan, numbers_below(plan.world_size), one_chunk_each(plan));
}
void ring_all_gather(CollectivePlan& plan) {
  add_ring_all_gather(plan, numbers_below(plan.world_size), one_chunk_each(plan));
}

void all_to_all(CollectivePlan& plan) {
  plan.chunks = plan.world_size * plan.world_size;
  add_direct_all_to_all(plan);
}

constexpr auto kReduce = Collective::all_reduce;
constexpr auto kScatter = Collective::reduce_scatter;
constexpr auto kGather = Collective::all_gather;
constexpr auto kBroadcast = Collective::broadcast;
constexpr auto kExchange = Collective::all_to_all;

constexpr Row kRows[] = {
    {kReduce, Algorithm::naive,
     [](CollectivePlan& plan) { whole(plan), add_naive_all_reduce(plan); }},
    {kReduce, Algorithm::direct,
     [](CollectivePlan& plan) { add_direct_reduce_scatter(plan), add_direct_all_gather(plan); }},
    {kReduce, Algorithm::ring,
     [](CollectivePlan& plan) { ring_reduce_scatter(plan), ring_all_gather(plan); }},
    {kReduce, Algorithm::recursive_doubling,
     [](CollectivePlan& plan) { whole(plan), add_recursive_doubling_all_reduce(plan); }},
    {kReduce, Algorithm::halving_doubling,
     [](CollectivePlan& plan) {
       plan.chunks = largest_power_of_two(plan.world_size);
       add_halving_doubling_all_reduce(plan);
     }},
    {kReduce, Algorithm::tree,
     [](CollectivePlan& plan) {
       whole(plan);
       add_tree_reduce(plan, numbers_below(plan.world_size));
       add_tree_broadcast(plan, numbers_below(plan.world_size));
     }},
    {kReduce, Algorithm::hierarchical, add_hierarchical},
    {kScatter, Algorithm::naive, add_direct_reduce_scatter},
    {kScatter, Algorithm::direct, add_direct_reduce_scatter},
    {kScatter, Algorithm::ring, ring_reduce_scatter},
    {kScatter, Algorithm::halving_doubling, add_recursive_halving_reduce_scatter},
    {kScatter, Algorithm::hierarchical, add_hierarchical},
    {kGather, Algorithm::naive, add_direct_all_gather},
    {kGather, Algorithm::direct, add_direct_all_gather},
    {kGather, Algorithm::ring, ring_all_gather},
    {kGather, Algorithm::recursive_doubling, add_recursive_doubling_all_gather},
    {kGather, Algorithm::hierarchical, add_hierarchical},
    {kBroadcast, Algorithm::naive,
     [](CollectivePlan& plan) { whole(plan), add_naive_broadcast(plan); }},
    {kBroadcast, Algorithm::ring, add_chain_broadcast},
    {kBroadcast, Algorithm::tree,
     [](CollectivePlan& plan) { whole(plan), add_tree_broadcast(plan, ranks_from_root(plan)); }},
    {kBroadcast, Algorithm::hierarchical,
     [](CollectivePlan& plan) { whole(plan), add_hierarchical(plan); }},
    {kExchange, Algorithm::naive, all_to_all},
    {kExchange, Algorithm::direct, all_to_all},
};

Builder builder_of(Collective collective, Algorithm algorithm) {
  for (const Row& row : kRows) {
    if (row.collective == collective && row.algorithm == algorithm) return row.build;
  }
  std::vector<std::string_view> choices;
  for (const Algorithm choice : algorithms_of(collective)) choices.push_back(to_string(choice));
  throw Error(
      ErrorCode::unsupported, "plan",
      fmt::format("there is no {} by algorithm '{}'", to_string(collective), to_string(algorithm)),
      fmt::format("one of {}", fmt::join(choices, ", ")));
}

void check_ranks(int world_size, int root, const std::vector<int>& hosts) {
  const auto refuse = [](const std::string& what, std::string_view remedy = {}) {
    throw Error(ErrorCode::invalid_argument, "plan", what, remedy);
  };
  if (world_size < 1) refuse(fmt::format("world size is {}, and must be at least 1", world_size));
  if (root < 0 || root >= world_size)
    refuse(fmt::format("root {} is outside a world of {} ranks", root, world_size));
  if (!hosts.empty() && hosts.size() != static_cast<size_t>(world_size))
    refuse(fmt::format("hosts are given for {} of {} ranks", hosts.size(), world_size),
           "one host number per rank, or none at all");
  for (const int host : hosts)
    if (host < 0) refuse(fmt::format("host number {} is below 0", host));
}

}  // namespace

std::vector<Algorithm> algorithms_of(Collective collective) {
  std::vector<Algorithm> algorithms;
  for (const Row& row : kRows)
    if (row.collective == collective) algorithms.push_back(row.algorithm);
  return algorithms;
}

std::vector<Algorithm> distinct_algorithms_of(Collective collective, int world_size) {
  std::vector<CollectivePlan> plans;
  std::vector<Algorithm> algorithms;
  for (const Algorithm algorithm : algorithms_of(collective)) {
    CollectivePlan plan = plan_collective(collective, algorithm, world_size);
    const bool known = std::any_of(plans.begin(), plans.end(),
                                   [&](const auto& other) { return other.rounds == plan.rounds; });
    if (known) continue;
    algorithms.push_back(algorithm);
    plans.push_back(std::move(plan));
  }
  return algorithms;
}

CollectivePlan plan_collective(Collective collective, Algorithm algorithm, int world_size,
                               int root, const std::vector<int>& hosts) {
  check_ranks(world_size, root, hosts);
  const Builder build = builder_of(collective, algorithm);
  CollectivePlan plan{.collective = collective,
                      .algorithm = algorithm,
                      .world_size = world_size,
                      .chunks = world_size,
                      .root = root,
                      .hosts = hosts};
  if (world_size > 1) build(plan);
  return plan;
}

}  // namespace trireme::plan
