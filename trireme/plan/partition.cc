#include <trireme/plan/partition.h>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <trireme/base/error.h>
#include <trireme/base/text.h>
#include <trireme/base/units.h>
#include <trireme/plan/partition_loads.h>
#include <algorithm>
#include <numeric>
#include <optional>
#include <set>

namespace trireme::plan {
namespace {

[[noreturn]] void refuse_partition(const std::string& what, const std::string& remedy = {}) {
  throw Error(ErrorCode::invalid_argument, "plan", what, remedy);
}

[[noreturn]] void broken_partition(const std::string& what) {
  throw Error(ErrorCode::internal, "plan", "partition: " + what);
}

bool has_cost(std::span<const BlockCost> blocks, PartitionMeasure measure) {
  return std::any_of(blocks.begin(), blocks.end(), [&](const BlockCost& block) {
    switch (measure) {
      case PartitionMeasure::parameters: return block.parameters != 0;
      case PartitionMeasure::time: return block.forward_seconds + block.backward_seconds != 0;
      case PartitionMeasure::memory: return block.parameter_bytes + block.activation_bytes != 0;
    }
    return false;
  });
}

// Empty for a cut by hand.
std::optional<PartitionMeasure> measure_of(std::span<const BlockCost> blocks,
                                           const std::string& cut) {
  for (const auto measure :
       {PartitionMeasure::parameters, PartitionMeasure::time, PartitionMeasure::memory})
    if (cut == to_string(measure)) {
      if (!has_cost(blocks, measure))
        refuse_partition(
            fmt::format("the cut is by {}, and no block has a cost of that kind", cut),
            "another measure, or a cut by hand");
      return measure;
    }
  if (cut != "auto") return {};
  return has_cost(blocks, PartitionMeasure::time) ? PartitionMeasure::time
                                                  : PartitionMeasure::parameters;
}

std::vector<int64_t> loads_of(const PartitionLoads& loads, const std::vector<int>& first) {
  std::vector<int64_t> result;
  for (size_t part = 0; part < first.size(); ++part)
    result.push_back(loads.of(static_cast<int>(part), first[part],
                              part + 1 < first.size() ? first[part + 1] : loads.blocks()));
  return result;
}

size_t largest_of(const std::vector<int64_t>& loads) {
  return static_cast<size_t>(std::max_element(loads.begin(), loads.end()) - loads.begin());
}

double evenness_of(const std::vector<int64_t>& loads) {
  const double sum = std::accumulate(loads.begin(), loads.end(), 0.0);
  if (sum == 0) return 1;
  return static_cast<double>(loads[largest_of(loads)]) * static_cast<double>(loads.size()) / sum;
}

std::string show_load(PartitionMeasure measure, int64_t load) {
  switch (measure) {
    case PartitionMeasure::parameters: return fmt::format("{} parameters", load);
    case PartitionMeasure::time: return fmt::format("{:.3f} ms", static_cast<double>(load) * 1e-6);
    case PartitionMeasure::memory: return format_bytes(load);
  }
  return {};
}

std::string block_names_of(const Partition& partition, int part) {
  const auto [from, to] = partition.blocks_of(part);
  const std::string first = "'" + partition.blocks[static_cast<size_t>(from)] + "'";
  if (to - from == 1) return first;
  return fmt::format("{} to '{}'", first, partition.blocks[static_cast<size_t>(to - 1)]);
}

std::string limit_of(const Partition& partition, const PartitionLoads& loads) {
  const size_t largest = largest_of(partition.loads);
  const int64_t sum = std::accumulate(partition.loads.begin(), partition.loads.end(), int64_t{0});
  const int parts = partition.parts();
  if (sum == 0 || partition.loads[largest] <= (sum + parts - 1) / parts) {
    if (partition.measure != PartitionMeasure::memory) return "the parts are even";
    return fmt::format("part {} ({}) needs the most memory, and the parts are even", largest,
                       block_names_of(partition, static_cast<int>(largest)));
  }
  const auto [from, to] = partition.blocks_of(static_cast<int>(largest));
  const std::string fraction =
      fmt::format("{:.0f} % of the {}",
                  100.0 * static_cast<double>(partition.loads[largest]) / static_cast<double>(sum),
                  to_string(partition.measure));
  const std::string has =
      to - from == 1 ? fmt::format("block {} alone has {}",
                                   block_names_of(partition, static_cast<int>(largest)), fraction)
                     : fmt::format("part {} ({}) has {}", largest,
                                   block_names_of(partition, static_cast<int>(largest)), fraction);
  const std::vector<int64_t> best =
      partition.by_hand ? loads_of(loads, best_cut(loads)) : partition.loads;
  const int64_t least = best[largest_of(best)];
  if (partition.loads[largest] > least)
    return fmt::format("{}; the best cut by {} has {:.2f}x the mean in its largest part", has,
                       to_string(partition.measure), evenness_of(best));
  return to - from == 1 ? has : has + ", and no cut makes the largest part smaller";
}

// Throws if a part needs more memory than the limit allows.
void keep_limit(std::span<const BlockCost> blocks, const PartitionOptions& options,
                const Partition& partition) {
  if (options.limit_bytes == 0) return;
  if (options.limit_bytes < 0)
    refuse_partition(fmt::format("the limit is {} bytes", options.limit_bytes), "0 for no limit");
  const PartitionLoads memory(blocks, PartitionMeasure::memory, partition.parts(),
                              options.micro_batches_held);
  const std::vector<int64_t> needs = loads_of(memory, partition.first);
  const size_t largest = largest_of(needs);
  if (needs[largest] <= options.limit_bytes) return;
  const std::vector<int64_t> best = loads_of(memory, best_cut(memory));
  const int64_t least = best[largest_of(best)];
  const std::string what =
      fmt::format("part {} ({}) needs {} ({} bytes), and the limit is {} bytes", largest,
                  block_names_of(partition, static_cast<int>(largest)),
                  format_bytes(needs[largest]), needs[largest], options.limit_bytes);
  if (least <= options.limit_bytes)
    refuse_partition(what, fmt::format("a cut by memory, which needs {} bytes", least));
  refuse_partition(
      what, fmt::format("more parts, or a limit of {} bytes: no cut into {} parts needs less",
                        least, partition.parts()));
}

void add_shared(const PartitionOptions& options, Partition& partition) {
  for (const std::vector<int>& group : options.shared) {
    const std::set<int> blocks(group.begin(), group.end());
    if (blocks.empty() || *blocks.begin() < 0 ||
        *blocks.rbegin() >= static_cast<int>(partition.blocks.size()))
      refuse_partition(fmt::format("a tensor is shared by the blocks {}, and the model has {}",
                                   group, partition.blocks.size()));
    std::set<int> parts;
    for (const int block : blocks) parts.insert(partition.part_of(block));
    partition.shared.push_back({{blocks.begin(), blocks.end()}, {parts.begin(), parts.end()}});
  }
}

}  // namespace

std::string_view to_string(PartitionMeasure measure) {
  switch (measure) {
    case PartitionMeasure::parameters: return "parameters";
    case PartitionMeasure::time: return "time";
    case PartitionMeasure::memory: return "memory";
  }
  broken_partition(fmt::format("no measure has the number {}", static_cast<int>(measure)));
}

std::pair<int, int> Partition::blocks_of(int part) const {
  const auto p = static_cast<size_t>(part);
  return {first.at(p), p + 1 < first.size() ? first[p + 1] : static_cast<int>(blocks.size())};
}

int Partition::part_of(int block) const {
  return static_cast<int>(std::upper_bound(first.begin(), first.end(), block) - first.begin()) - 1;
}

std::string Partition::describe() const {
  std::string text =
      fmt::format("{} part{} of {} blocks, cut by {}: the largest has {:.2f}x the mean\n", parts(),
                  parts() == 1 ? "" : "s", blocks.size(),
                  by_hand ? "hand" : std::string(to_string(measure)), evenness);
  for (int part = 0; part < parts(); ++part) {
    const auto [from, to] = blocks_of(part);
    text += fmt::format("{:>6}  {} block{} ({})  {}", part, to - from, to - from == 1 ? "" : "s",
                        block_names_of(*this, part),
                        show_load(measure, loads[static_cast<size_t>(part)]));
    if (part + 1 < parts() && cut_bytes[static_cast<size_t>(part)] > 0)
      text += fmt::format("  sends {}", format_bytes(cut_bytes[static_cast<size_t>(part)]));
    text += '\n';
  }
  text += "  limit: " + limit + "\n";
  for (const auto& [of, in] : shared) {
    std::vector<std::string> names;
    for (const int block : of) names.push_back("'" + blocks[static_cast<size_t>(block)] + "'");
    text += fmt::format("  shared: a tensor of {} in part{} {}\n", fmt::join(names, ", "),
                        in.size() == 1 ? "" : "s", fmt::join(in, ", "));
  }
  return text;
}

Json Partition::to_json() const {
  Json json = {{"parts", Json::array()}, {"measure", to_string(measure)},
               {"by_hand", by_hand},     {"evenness", evenness},
               {"limit", limit},         {"shared", Json::array()}};
  for (int part = 0; part < parts(); ++part) {
    const auto [from, to] = blocks_of(part);
    json["parts"].push_back(
        {{"first", from},
         {"blocks", std::vector<std::string>(blocks.begin() + from, blocks.begin() + to)},
         {"load", loads[static_cast<size_t>(part)]}});
    if (part + 1 < parts()) json["parts"].back()["sends"] = cut_bytes[static_cast<size_t>(part)];
  }
  for (const auto& [of, in] : shared) json["shared"].push_back({{"blocks", of}, {"parts", in}});
  return json;
}

Partition partition(std::span<const BlockCost> blocks, const PartitionOptions& options) {
  if (blocks.empty()) refuse_partition("the model has no blocks to cut");
  if (options.parts < 0) refuse_partition(fmt::format("{} parts", options.parts), "at least 1");
  Partition result;
  for (const BlockCost& block : blocks) result.blocks.push_back(block.name);
  const std::string cut(trimmed(options.cut));
  const auto measure = measure_of(blocks, cut);
  result.by_hand = !measure;
  result.measure = measure ? *measure : *measure_of(blocks, "auto");
  if (result.by_hand) {
    result.first = cut_by_hand(blocks, cut);
    if (options.parts != 0 && options.parts != result.parts())
      refuse_partition(fmt::format("the cut '{}' makes {} parts, and {} are asked for", cut,
                                   result.parts(), options.parts));
  } else if (options.parts == 0) {
    refuse_partition(fmt::format("a cut by {} needs a number of parts", cut), "at least 1");
  } else if (options.parts > static_cast<int>(blocks.size())) {
    refuse_partition(fmt::format("{} parts of {} blocks: a part needs at least one block",
                                 options.parts, blocks.size()),
                     fmt::format("at most {} parts", blocks.size()));
  }
  const PartitionLoads loads(blocks, result.measure,
                             result.by_hand ? result.parts() : options.parts,
                             options.micro_batches_held);
  if (!result.by_hand) result.first = best_cut(loads);
  result.loads = loads_of(loads, result.first);
  for (int part = 1; part < result.parts(); ++part)
    result.cut_bytes.push_back(loads.sent_before(result.first[static_cast<size_t>(part)]));
  result.evenness = evenness_of(result.loads);
  result.limit = limit_of(result, loads);
  keep_limit(blocks, options, result);
  add_shared(options, result);
  return result;
}

void check(const Partition& partition) {
  if (partition.first.empty() || partition.first[0] != 0)
    broken_partition("no part begins at the first block");
  for (int part = 0; part < partition.parts(); ++part) {
    const auto [from, to] = partition.blocks_of(part);
    if (from >= to)
      broken_partition(fmt::format("part {} has the blocks {} to {}", part, from, to));
  }
  if (partition.loads.size() != partition.first.size() ||
      partition.cut_bytes.size() + 1 != partition.first.size())
    broken_partition(fmt::format("{} parts have {} loads and {} cuts", partition.parts(),
                                 partition.loads.size(), partition.cut_bytes.size()));
}

}  // namespace trireme::plan
