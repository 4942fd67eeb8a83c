#include <trireme/plan/shard_plan.h>

#include <fmt/format.h>
#include <trireme/base/error.h>
#include <algorithm>
#include <numeric>

namespace trireme::plan {
namespace {

constexpr int64_t kBarWidth = 32;  // Characters.

[[noreturn]] void refuse_shards(const std::string& what) {
  throw Error(ErrorCode::internal, "plan", "shard plan: " + what);
}

const TensorSpec& spec_of(const Slice& slice, std::span<const TensorSpec> params, int rank) {
  if (slice.parameter < 0 || static_cast<size_t>(slice.parameter) >= params.size())
    refuse_shards(
        fmt::format("rank {} names parameter {} of {}", rank, slice.parameter, params.size()));
  return params[static_cast<size_t>(slice.parameter)];
}

void check_slice(const Slice& slice, std::span<const TensorSpec> params, int rank) {
  const TensorSpec& spec = spec_of(slice, params, rank);
  if (!spec.trainable)
    refuse_shards(
        fmt::format("rank {} has a slice of '{}', which is not trainable", rank, spec.name));
  if (slice.from < 0 || slice.from >= slice.to || slice.to > spec.elements())
    refuse_shards(fmt::format("rank {} has elements {} to {} of '{}', which has {}", rank,
                              slice.from, slice.to, spec.name, spec.elements()));
}

void check_cover(const ShardPlan& plan, const std::vector<int>& team,
                 std::span<const TensorSpec> params) {
  struct Owned {
    Slice slice;
    int rank;
  };
  std::vector<std::vector<Owned>> owned(params.size());
  for (const int rank : team)
    for (const Slice& slice : plan.ranks[static_cast<size_t>(rank)]) {
      check_slice(slice, params, rank);
      owned[static_cast<size_t>(slice.parameter)].push_back({slice, rank});
    }
  for (size_t p = 0; p < params.size(); ++p) {
    std::sort(owned[p].begin(), owned[p].end(),
              [](const Owned& a, const Owned& b) { return a.slice.from < b.slice.from; });
    int64_t end = 0;
    for (const auto& [slice, rank] : owned[p]) {
      if (slice.from != end)
        refuse_shards(fmt::format("element {} of '{}' belongs to {}, near the slice of rank {}",
                                  std::min(end, slice.from), params[p].name,
                                  slice.from < end ? "two ranks" : "no rank", rank));
      end = slice.to;
    }
    if (params[p].trainable && end != params[p].elements())
      refuse_shards(fmt::format("element {} of '{}' belongs to no rank", end, params[p].name));
  }
}

// The bar marks the places of a rank's elements among those of all trainable parameters.
std::string bar(const std::vector<Slice>& slices, const std::vector<int64_t>& begin,
                int64_t elements) {
  std::string text(kBarWidth, '.');
  for (const Slice& slice : slices) {
    const int64_t first = begin[static_cast<size_t>(slice.parameter)] + slice.from,
                  last = first + slice.to - slice.from;
    const int64_t from = first * kBarWidth / elements,
                  to = std::max(from + 1, last * kBarWidth / elements);
    for (int64_t i = from; i < to; ++i) text[static_cast<size_t>(i)] = '#';
  }
  return text;
}

std::string to_string(const Slice& slice, std::span<const TensorSpec> params) {
  const TensorSpec& spec = params[static_cast<size_t>(slice.parameter)];
  if (slice.from == 0 && slice.to == spec.elements()) return spec.name;
  return fmt::format("{}[{}:{}]", spec.name, slice.from, slice.to);
}

}  // namespace

int64_t ShardPlan::elements_of(int rank) const {
  int64_t elements = 0;
  for (const Slice& slice : ranks[static_cast<size_t>(rank)]) elements += slice.to - slice.from;
  return elements;
}

std::string ShardPlan::describe(std::span<const TensorSpec> params) const {
  std::vector<int64_t> begin;
  int64_t elements = 0;
  for (const TensorSpec& spec : params) {
    begin.push_back(elements);
    if (spec.trainable) elements += spec.elements();
  }
  const bool replicated = teams.size() == ranks.size();
  std::string text =
      replicated ? fmt::format("every rank updates its own copy of {} elements\n", elements)
                 : fmt::format("the ranks of a host update one copy of {} elements\n", elements);
  if (replicated || elements == 0) return text;
  for (const auto& team : teams)
    for (const int rank : team) {
      const auto& slices = ranks[static_cast<size_t>(rank)];
      text +=
          fmt::format("{:>6}  {}  {:>12}", rank, bar(slices, begin, elements), elements_of(rank));
      if (!slices.empty())
        text += fmt::format("  {}{}", to_string(slices.front(), params),
                            slices.size() > 1 ? " .. " + to_string(slices.back(), params) : "");
      text += '\n';
    }
  return text;
}

Json ShardPlan::to_json() const {
  Json json = {{"teams", teams}, {"ranks", Json::array()}};
  for (const auto& slices : ranks) {
    Json own = Json::array();
    for (const auto& [parameter, from, to] : slices) own.push_back({parameter, from, to});
    json["ranks"].push_back(std::move(own));
  }
  return json;
}

ShardPlan replicate(std::span<const TensorSpec> params, int ranks) {
  std::vector<Slice> all;
  for (size_t p = 0; p < params.size(); ++p)
    if (params[p].trainable && params[p].elements() > 0)
      all.push_back({static_cast<int>(p), 0, params[p].elements()});
  ShardPlan plan;
  for (int rank = 0; rank < ranks; ++rank) {
    plan.teams.push_back({rank});
    plan.ranks.push_back(all);
  }
  return plan;
}

void check(const ShardPlan& plan, std::span<const TensorSpec> params) {
  std::vector<int> times(plan.ranks.size(), 0);
  for (const auto& team : plan.teams)
    for (const int rank : team) {
      if (rank < 0 || static_cast<size_t>(rank) >= plan.ranks.size())
        refuse_shards(fmt::format("a team names rank {} of {}", rank, plan.ranks.size()));
      ++times[static_cast<size_t>(rank)];
    }
  for (size_t rank = 0; rank < times.size(); ++rank)
    if (times[rank] != 1) refuse_shards(fmt::format("rank {} is in {} teams", rank, times[rank]));
  for (const auto& team : plan.teams) check_cover(plan, team, params);
}

}  // namespace trireme::plan
