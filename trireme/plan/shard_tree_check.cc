#include <fmt/format.h>
#include <trireme/base/error.h>
#include <trireme/plan/shard_tree.h>
#include <map>

namespace trireme::plan {
namespace {

[[noreturn]] void reject(const std::string& what) {
  throw Error(ErrorCode::internal, "plan", "shard tree: " + what);
}

// The facts about a node that running the plan shows: the shards below it, and the order
// of their additions.
struct Node {
  ShardRange range;
  std::string additions;
};
using Nodes = std::map<int, Node>;  // The key is the first shard.

void add(Nodes& nodes, const ShardSum& sum) {
  const auto into = nodes.find(sum.into), from = nodes.find(sum.from);
  if (into == nodes.end() || from == nodes.end())
    reject(fmt::format("{} += {} adds a node that does not exist", sum.into, sum.from));
  if (into->second.range.last != sum.from || from->second.range.last != sum.last)
    reject(fmt::format("{} += {} adds nodes that are not neighbours", sum.into, sum.from));
  into->second = {{sum.into, sum.last},
                  fmt::format("({}+{})", into->second.additions, from->second.additions)};
  nodes.erase(from);
}

void compute(Nodes& nodes, int shard) {
  nodes[shard] = {{shard, shard + 1}, std::to_string(shard)};
}

// Runs the sums of a rank, whose shards arrive one after the other.
Nodes run(const ShardTree::Rank& rank) {
  Nodes nodes;
  size_t next = 0;
  for (int shard = rank.own.first; shard < rank.own.last; ++shard) {
    compute(nodes, shard);
    for (; next < rank.sums.size() && rank.sums[next].last == shard + 1; ++next)
      add(nodes, rank.sums[next]);
  }
  if (next != rank.sums.size())
    reject(fmt::format("{} += {} is out of order", rank.sums[next].into, rank.sums[next].from));
  if (nodes.size() != rank.travels.size())
    reject(fmt::format("{} nodes travel, but {} are left", rank.travels.size(), nodes.size()));
  for (const ShardRange& travelling : rank.travels)
    if (const auto found = nodes.find(travelling.first);
        found == nodes.end() || found->second.range != travelling)
      reject(fmt::format("the node [{}, {}) travels, but does not exist", travelling.first,
                         travelling.last));
  return nodes;
}

// The order of additions by pairs of neighbours, level by level.
std::string right_order(int shards) {
  std::vector<std::string> level;
  for (int shard = 0; shard < shards; ++shard) level.push_back(std::to_string(shard));
  while (level.size() > 1) {
    std::vector<std::string> above;
    for (size_t i = 0; i + 1 < level.size(); i += 2)
      above.push_back(fmt::format("({}+{})", level[i], level[i + 1]));
    if (level.size() % 2 == 1) above.push_back(level.back());
    level = std::move(above);
  }
  return level[0];
}

}  // namespace

void check(const ShardTree& tree) {
  Nodes nodes;
  int end = 0;
  for (const ShardTree::Rank& rank : tree.ranks) {
    if (rank.own.first != end || rank.own.last < end)
      reject(fmt::format("shard {} has no owner, or two", end));
    end = rank.own.last;
    nodes.merge(run(rank));
  }
  if (end != tree.shards) reject(fmt::format("shard {} of {} has no owner", end, tree.shards));
  for (const ShardSum& sum : tree.combine) add(nodes, sum);
  if (nodes.size() != 1 || nodes.begin()->second.additions != right_order(tree.shards))
    reject(fmt::format("{} ranks add in another order than one rank", tree.ranks.size()));
}

}  // namespace trireme::plan
