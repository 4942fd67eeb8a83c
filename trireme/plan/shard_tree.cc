#include <fmt/format.h>
#include <fmt/ranges.h>
#include <trireme/base/error.h>
#include <trireme/plan/data_plan.h>
#include <trireme/plan/shard_tree.h>
#include <algorithm>

namespace trireme::plan {
namespace {

// The additions of all levels, from the leaves up. Only those whose two halves lie in
// `within` are kept.
std::vector<ShardSum> sums_within(ShardRange within, int shards) {
  std::vector<ShardSum> sums;
  for (int width = 1; width < shards; width *= 2)
    for (int into = 0; into + width < shards; into += 2 * width) {
      const int last = std::min(into + 2 * width, shards);
      if (into >= within.first && last <= within.last) sums.push_back({into, into + width, last});
    }
  // Among sums with the same end, the lower one comes first.
  std::stable_sort(sums.begin(), sums.end(),
                   [](const ShardSum& a, const ShardSum& b) { return a.last < b.last; });
  return sums;
}

// The nodes that remain of the leaves of `own` after `sums`.
std::vector<ShardRange> left_after(const std::vector<ShardSum>& sums, ShardRange own) {
  std::vector<ShardRange> nodes;
  for (int shard = own.first; shard < own.last; ++shard) {
    const auto is_added = [&](const ShardSum& sum) { return sum.from == shard; };
    if (std::any_of(sums.begin(), sums.end(), is_added)) continue;
    ShardRange node{shard, shard + 1};
    for (const ShardSum& sum : sums)
      if (sum.into == shard) node.last = std::max(node.last, sum.last);
    nodes.push_back(node);
  }
  return nodes;
}

std::string to_string(ShardRange range) {
  if (range.last - range.first == 1) return fmt::format("{}", range.first);
  return fmt::format("{}-{}", range.first, range.last - 1);
}

std::string to_string(const std::vector<ShardRange>& ranges) {
  std::vector<std::string> texts;
  for (const ShardRange range : ranges) texts.push_back(to_string(range));
  return fmt::format("{}", fmt::join(texts, ", "));
}

}  // namespace

ShardTree plan_shard_tree(int shards, int world_size) {
  if (shards < 1 || world_size < 1)
    throw Error(ErrorCode::invalid_argument, "plan",
                fmt::format("{} virtual shards for {} ranks", shards, world_size),
                "at least 1 of each");
  ShardTree tree;
  tree.shards = shards;
  tree.combine = sums_within({0, shards}, shards);
  for (int rank = 0; rank < world_size; ++rank) {
    const auto [first, last] = DataPlan::share(shards, rank, world_size);
    ShardTree::Rank part;
    part.own = {static_cast<int>(first), static_cast<int>(last)};
    part.sums = sums_within(part.own, shards);
    part.travels = left_after(part.sums, part.own);
    for (const ShardSum& done : part.sums) std::erase(tree.combine, done);
    tree.ranks.push_back(std::move(part));
  }
  return tree;
}

std::string ShardTree::describe() const {
  std::string text = fmt::format("{} virtual shards, added up by a tree of fixed order\n", shards);
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    const Rank& part = ranks[rank];
    if (part.travels.empty())
      text += fmt::format("  rank {}: none\n", rank);
    else
      text += fmt::format("  rank {}: {}; as {}\n", rank, to_string(part.own),
                          to_string(part.travels));
  }
  return text;
}

Json ShardTree::to_json() const {
  const auto pairs = [](const std::vector<ShardRange>& ranges) {
    Json json = Json::array();
    for (const auto [first, last] : ranges) json.push_back({first, last});
    return json;
  };
  Json json = {{"shards", shards}, {"ranks", Json::array()}};
  for (const Rank& part : ranks)
    json["ranks"].push_back(
        {{"own", {part.own.first, part.own.last}}, {"travels", pairs(part.travels)}});
  return json;
}

}  // namespace trireme::plan
