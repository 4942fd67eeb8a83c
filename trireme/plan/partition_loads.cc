#include <trireme/plan/partition_loads.h>

#include <fmt/format.h>
#include <trireme/base/error.h>
#include <algorithm>
#include <cmath>
#include <limits>

namespace trireme::plan {
namespace {

using Squares = unsigned __int128;
// The square of the sum of all loads fits Squares.
constexpr int64_t kLargestLoad = int64_t{1} << 60;

int64_t checked_cost(const BlockCost& block, double value, const char* name) {
  if (!(value >= 0 && value <= static_cast<double>(kLargestLoad)))
    throw Error(ErrorCode::invalid_argument, "plan",
                fmt::format("block '{}' has {} {}", block.name, value, name), "a cost from 0 on");
  return std::llround(value);
}

void add_load(std::vector<int64_t>& sums, int64_t load) {
  if (sums.back() > kLargestLoad - load)
    throw Error(ErrorCode::invalid_argument, "plan",
                "the costs of the blocks are too large to add");
  sums.push_back(sums.back() + load);
}

// The tables of a search from the last part to the first: [part][block] stands for the blocks from
// `block` on in the parts from `part` on.
struct CutSearch {
  explicit CutSearch(const PartitionLoads& given)
      : loads(given), columns(static_cast<size_t>(given.blocks()) + 1) {}

  size_t index(int part, int block) const {
    return static_cast<size_t>(part) * columns + static_cast<size_t>(block);
  }
  // The range of the first block of the part behind `part`, which begins at `block`.
  int first_end(int part, int block) const {
    return part + 1 == loads.parts() ? loads.blocks() : block + 1;
  }
  int last_end(int part) const { return loads.blocks() - (loads.parts() - 1 - part); }

  // The smallest largest load.
  int64_t smallest_largest() const {
    std::vector<int64_t> behind(columns, 0);
    for (int part = loads.parts() - 1; part >= 0; --part) {
      std::vector<int64_t> here(columns, std::numeric_limits<int64_t>::max());
      for (int block = part; block < last_end(part); ++block)
        for (int end = first_end(part, block); end <= last_end(part); ++end)
          here[static_cast<size_t>(block)] =
              std::min(here[static_cast<size_t>(block)],
                       std::max(loads.of(part, block, end), behind[static_cast<size_t>(end)]));
      behind = std::move(here);
    }
    return behind[0];
  }

  const PartitionLoads& loads;
  size_t columns;
};

struct CutCost {
  Squares squares = 0;
  int64_t sent = 0;
  int end = 0;  // The first block of the next part; 0 if no cut keeps the largest load.
  bool better_than(const CutCost& other) const {
    if (other.end == 0 || squares != other.squares)
      return other.end == 0 || squares < other.squares;
    return sent < other.sent;
  }
};

}  // namespace

PartitionLoads::PartitionLoads(std::span<const BlockCost> blocks, PartitionMeasure measure,
                               int parts, std::span<const int> micro_batches_held)
    : fixed_{0}, held_bytes_{0}, held_(static_cast<size_t>(parts), 1) {
  if (!micro_batches_held.empty() && micro_batches_held.size() != held_.size())
    throw Error(ErrorCode::invalid_argument, "plan",
                fmt::format("the micro-batches that are held are given for {} of {} parts",
                            micro_batches_held.size(), parts));
  for (size_t part = 0; part < micro_batches_held.size(); ++part) {
    if (micro_batches_held[part] < 0)
      throw Error(ErrorCode::invalid_argument, "plan",
                  fmt::format("part {} holds {} micro-batches", part, micro_batches_held[part]));
    held_[part] = micro_batches_held[part];
  }
  const int64_t most_held = *std::max_element(held_.begin(), held_.end());
  sent_.push_back(0);
  for (const BlockCost& block : blocks) {
    const auto number = [&](int64_t value, const char* name) {
      return checked_cost(block, static_cast<double>(value), name) == 0 ? 0 : value;
    };
    const int64_t nanoseconds =
        checked_cost(block, 1e9 * block.forward_seconds, "ns of forward") +
        checked_cost(block, 1e9 * block.backward_seconds, "ns of backward");
    const int64_t elements = number(block.parameters, "parameters");
    const int64_t state = number(block.parameter_bytes, "bytes of parameters");
    const int64_t activations = number(block.activation_bytes, "bytes of activations");
    const bool memory = measure == PartitionMeasure::memory;
    add_load(fixed_, memory ? state : measure == PartitionMeasure::time ? nanoseconds : elements);
    add_load(held_bytes_, memory ? activations : 0);
    sent_.push_back(number(block.output_bytes, "bytes of output"));
    entry_.push_back(memory ? number(block.entry_bytes, "bytes of input") : 0);
  }
  const int64_t most_entered = entry_.empty() ? 0 : std::ranges::max(entry_);
  if (most_held > 0 &&
      held_bytes_.back() > (kLargestLoad - fixed_.back()) / most_held - most_entered)
    throw Error(ErrorCode::invalid_argument, "plan",
                "the costs of the blocks are too large to add");
}

int64_t PartitionLoads::of(int part, int from, int to) const {
  const auto begin = static_cast<size_t>(from), end = static_cast<size_t>(to);
  return fixed_[end] - fixed_[begin] +
         held_[static_cast<size_t>(part)] *
             (entry_[begin] + held_bytes_[end] - held_bytes_[begin]);
}

std::vector<int> best_cut(const PartitionLoads& loads) {
  const CutSearch search(loads);
  const int64_t largest = search.smallest_largest();
  // Among the cuts that reach it: a second search over parts of at most this load.
  const int parts = loads.parts();
  std::vector<CutCost> best(static_cast<size_t>(parts + 1) * search.columns);
  best[search.index(parts, loads.blocks())].end = loads.blocks();
  for (int part = parts - 1; part >= 0; --part)
    for (int block = part; block < search.last_end(part); ++block)
      for (int end = search.first_end(part, block); end <= search.last_end(part); ++end) {
        const int64_t load = loads.of(part, block, end);
        const CutCost& behind = best[search.index(part + 1, end)];
        if (load > largest || behind.end == 0) continue;
        const bool last = part + 1 == parts;
        const CutCost cost{
            behind.squares + static_cast<Squares>(load) * static_cast<Squares>(load),
            behind.sent + (last ? 0 : loads.sent_before(end)), end};
        CutCost& here = best[search.index(part, block)];
        if (cost.better_than(here)) here = cost;
      }
  std::vector<int> first;
  for (int part = 0, block = 0; part < parts; ++part) {
    first.push_back(block);
    block = best[search.index(part, block)].end;
  }
  return first;
}

}  // namespace trireme::plan
