#include <trireme/plan/shared_layout.h>

#include <fmt/format.h>
#include <trireme/base/error.h>
#include <algorithm>

namespace trireme::plan {
namespace {

size_t take(size_t& end, size_t bytes, size_t in_front = 0) {
  end += in_front;
  const size_t place = end;
  end += (bytes + kCacheLine - 1) / kCacheLine * kCacheLine;
  return place;
}

// The part of the trainable bytes [first, last) that falls into each parameter.
std::vector<Slice> slices_between(std::span<const TensorSpec> params, const SharedLayout& layout,
                                  size_t first, size_t last) {
  std::vector<Slice> slices;
  for (size_t i = 0; i < params.size(); ++i) {
    if (!params[i].trainable || params[i].elements() == 0) continue;
    const size_t begin = layout.gradients[i], end = begin + static_cast<size_t>(params[i].bytes());
    const size_t from = std::max(first, begin), to = std::min(last, end);
    if (from >= to) continue;
    const auto element = [&](size_t at) {
      return static_cast<int64_t>(at - begin) / bytes_of(params[i].dtype);
    };
    slices.push_back({static_cast<int>(i), element(from), element(to)});
  }
  return slices;
}

// A place in memory, and the parameter to which it belongs.
struct Region {
  size_t first = 0, bytes = 0;
  size_t parameter = 0;
};

void check_apart(std::vector<Region> regions, size_t memory, std::span<const TensorSpec> params) {
  std::sort(regions.begin(), regions.end(),
            [](const Region& a, const Region& b) { return a.first < b.first; });
  size_t end = 0;
  for (const auto& [first, bytes, parameter] : regions) {
    if (bytes == 0) continue;
    if (first < end || first + bytes > memory)
      throw Error(
          ErrorCode::internal, "plan",
          fmt::format("shared layout: bytes {} to {} of '{}' overlap others, or end behind "
                      "the memory of {}",
                      first, first + bytes, params[parameter].name, memory));
    end = first + bytes;
  }
}

}  // namespace

void check(const SharedLayout& layout, std::span<const TensorSpec> params) {
  std::vector<Region> model, gradients;
  for (size_t p = 0; p < params.size(); ++p) {
    const auto bytes = static_cast<size_t>(params[p].bytes());
    model.push_back({layout.parameters[p], bytes, p});
    for (const size_t state : layout.states[p]) model.push_back({state, bytes, p});
    if (params[p].trainable) gradients.push_back({layout.gradients[p], bytes, p});
  }
  check_apart(std::move(model), layout.model_bytes, params);
  check_apart(std::move(gradients), layout.gradient_bytes, params);
}

Json to_json(const SharedLayout& layout) {
  return {{"parameters", layout.parameters},
          {"states", layout.states},
          {"model_bytes", layout.model_bytes},
          {"gradients", layout.gradients},
          {"gradient_bytes", layout.gradient_bytes}};
}

SharedLayout lay_out(std::span<const TensorSpec> params, std::span<const int> state_tensors,
                     std::span<const TensorSpec> updated) {
  if (updated.empty()) updated = params;
  SharedLayout layout;
  for (const TensorSpec& spec : params) {
    const auto bytes = static_cast<size_t>(spec.bytes());
    layout.parameters.push_back(take(layout.model_bytes, bytes));
    layout.gradients.push_back(spec.trainable ? take(layout.gradient_bytes, bytes, kCacheLine)
                                              : 0);
  }
  // State lies behind the parameters, in the same order: a rank's shard is then one run of each.
  layout.states.resize(params.size());
  for (int tensor = 0; tensor < 3; ++tensor)
    for (size_t i = 0; i < params.size(); ++i)
      if (tensor < state_tensors[i])
        layout.states[i].push_back(
            take(layout.model_bytes, static_cast<size_t>(updated[i].bytes())));
  return layout;
}

ShardPlan plan_shards(std::span<const TensorSpec> params, const SharedLayout& layout,
                      std::span<const int> hosts) {
  ShardPlan plan;
  plan.ranks.resize(hosts.size());
  plan.teams.resize(
      hosts.empty() ? 0 : static_cast<size_t>(*std::max_element(hosts.begin(), hosts.end()) + 1));
  for (size_t rank = 0; rank < hosts.size(); ++rank)
    plan.teams[static_cast<size_t>(hosts[rank])].push_back(static_cast<int>(rank));
  for (const auto& team : plan.teams) {
    const size_t whole = layout.gradient_bytes;
    const size_t each = (whole / team.size() + kCacheLine - 1) / kCacheLine * kCacheLine;
    for (size_t place = 0; place < team.size(); ++place) {
      const bool last = place + 1 == team.size();
      plan.ranks[static_cast<size_t>(team[place])] =
          slices_between(params, layout, std::min(whole, place * each),
                         last ? whole : std::min(whole, (place + 1) * each));
    }
  }
  return plan;
}

}  // namespace trireme::plan
