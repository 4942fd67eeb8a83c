#include <trireme/plan/row_shards.h>

#include <fmt/format.h>
#include <trireme/base/error.h>
#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <utility>

namespace trireme::plan {
namespace {

// A parameter of this size travels alone, if its rows can be divided evenly: a message of its own
// then costs less than the copies into and out of a common one.
constexpr int64_t kAloneBytes = 128 << 10;
// A smaller part of a parameter for each rank is not worth the cut.
constexpr int64_t kSmallestPartBytes = 512;

int64_t row_elements(const TensorSpec& spec) { return spec.elements() / spec.shape.front(); }

bool can_be_divided(const TensorSpec& spec) { return !spec.shape.empty() && spec.elements() > 0; }

class RowPlanner {
 public:
  RowPlanner(std::span<const TensorSpec> params, int ranks, const RowShardOptions& options)
      : params_(params), options_(options), ranks_(static_cast<size_t>(ranks)) {
    plan_.ranks = ranks;
    plan_.rows.resize(params.size());
    for (auto& owned : owned_bytes_) owned.assign(ranks_, 0);
  }

  // Plans the units of parameters that the same blocks use.
  void add(const std::vector<int>& params, const std::vector<int>& blocks) {
    for (const bool trainable : {true, false}) {
      if (!trainable && !options_.divide_frozen) continue;
      std::vector<TensorSpec> together;
      std::vector<int> numbers;
      for (const int param : params) {
        const TensorSpec& spec = spec_of(param);
        if (spec.trainable != trainable || !can_be_divided(spec)) continue;
        if (travels_alone(spec)) {
          add_alone(param, blocks);
          continue;
        }
        together.push_back(spec);
        together.back().trainable = true;
        numbers.push_back(param);
      }
      for (const Bucket& bucket : plan_buckets(together, options_.buckets).buckets) {
        RowUnit unit{bucket.dtype, trainable, {}, {}, 0, blocks, false};
        for (const int place : bucket.params)
          unit.params.push_back(numbers[static_cast<size_t>(place)]);
        add_together(std::move(unit));
      }
    }
  }

  RowShards take() { return std::move(plan_); }

 private:
  const TensorSpec& spec_of(int param) const { return params_[static_cast<size_t>(param)]; }
  std::vector<int64_t>& owned(const TensorSpec& spec) { return owned_bytes_[spec.trainable]; }

  bool travels_alone(const TensorSpec& spec) const {
    return spec.shape.front() % std::ssize(owned_bytes_[0]) == 0 && spec.bytes() >= kAloneBytes;
  }

  void add_alone(int param, const std::vector<int>& blocks) {
    const TensorSpec& spec = spec_of(param);
    const auto ranks = static_cast<int64_t>(ranks_);
    const int64_t each = spec.shape.front() / ranks;
    auto& rows = plan_.rows[static_cast<size_t>(param)];
    for (int64_t rank = 0; rank < ranks; ++rank) rows.push_back({rank * each, (rank + 1) * each});
    for (int64_t& bytes : owned(spec)) bytes += spec.bytes() / ranks;
    plan_.units.push_back({spec.dtype,
                           spec.trainable,
                           {param},
                           std::vector<std::vector<int64_t>>(ranks_, std::vector<int64_t>{0}),
                           spec.elements() / ranks,
                           blocks,
                           true});
  }

  void add_together(RowUnit unit) {
    // The finest parts come last, so that they level out what the coarser ones left.
    std::vector<int> order = unit.params;
    std::ranges::stable_sort(order, std::greater<>(),
                             [&](int param) { return std::pair(is_even(param), grain(param)); });
    for (const int param : order) give_out(param);
    std::vector<int64_t> used(ranks_, 0);
    unit.offsets.resize(ranks_);
    for (const int param : unit.params)
      for (size_t rank = 0; rank < ranks_; ++rank) {
        unit.offsets[rank].push_back(used[rank]);
        used[rank] +=
            plan_.rows[static_cast<size_t>(param)][rank].count() * row_elements(spec_of(param));
      }
    unit.block_elements = std::ranges::max(used);
    plan_.units.push_back(std::move(unit));
  }

  bool is_even(int param) const { return options_.evenly.contains(param); }
  bool is_cut(const TensorSpec& spec) const {
    return spec.shape.front() > 1 &&
           spec.bytes() >= kSmallestPartBytes * static_cast<int64_t>(ranks_);
  }
  // The bytes of the parts in which a parameter can be given out.
  int64_t grain(int param) const {
    const TensorSpec& spec = spec_of(param);
    return is_cut(spec) ? spec.bytes() / spec.shape.front() : spec.bytes();
  }

  void give_out(int param) {
    const TensorSpec& spec = spec_of(param);
    std::vector<int64_t>& bytes = owned(spec);
    std::vector<int64_t> wanted(ranks_, 0);  // In the proportions in which the rows are given.
    if (is_even(param)) {
      wanted.assign(ranks_, 1);
    } else if (is_cut(spec)) {
      const int64_t level = level_after(bytes, spec.bytes());
      for (size_t rank = 0; rank < ranks_; ++rank)
        wanted[rank] = std::max<int64_t>(0, level - bytes[rank]);
    } else {
      wanted[static_cast<size_t>(std::ranges::min_element(bytes) - bytes.begin())] = 1;
    }
    const int64_t total = std::accumulate(wanted.begin(), wanted.end(), int64_t{0});
    const int64_t rows = spec.shape.front();
    RowRange next;
    int64_t so_far = 0;
    for (size_t rank = 0; rank < ranks_; ++rank) {
      so_far += wanted[rank];
      const auto end = static_cast<double>(so_far) / static_cast<double>(total);
      next = {next.to, so_far == total ? rows : std::llround(end * static_cast<double>(rows))};
      plan_.rows[static_cast<size_t>(param)].push_back(next);
      bytes[rank] += next.count() * (spec.bytes() / rows);
    }
  }

  // The bytes of each rank once `more` have filled up the ranks that have least.
  static int64_t level_after(std::vector<int64_t> bytes, int64_t more) {
    std::ranges::sort(bytes);
    int64_t below = 0;
    for (size_t rank = 0; rank < bytes.size(); ++rank) {
      below += bytes[rank];
      const auto count = static_cast<int64_t>(rank) + 1;
      const int64_t level = (below + more + count - 1) / count;
      if (rank + 1 == bytes.size() || level <= bytes[rank + 1]) return level;
    }
    return 0;
  }

  const std::span<const TensorSpec> params_;
  const RowShardOptions& options_;
  const size_t ranks_;
  RowShards plan_;
  std::vector<int64_t> owned_bytes_[2];  // [trainable][rank]
};

// The parameters by the blocks that use them; the last blocks first.
std::vector<std::pair<std::vector<int>, std::vector<int>>> by_blocks(
    size_t params, std::span<const std::vector<int>> blocks) {
  std::vector<std::vector<int>> users(params);
  for (size_t block = 0; block < blocks.size(); ++block)
    for (const int param : blocks[block]) {
      if (param < 0 || param >= static_cast<int>(params))
        throw Error(ErrorCode::invalid_argument, "plan",
                    fmt::format("block {} names parameter {} of {}", block, param, params),
                    "blocks of the same model as the parameters");
      std::vector<int>& of_param = users[static_cast<size_t>(param)];
      if (of_param.empty() || of_param.back() != static_cast<int>(block))
        of_param.push_back(static_cast<int>(block));
    }
  std::map<std::vector<int>, std::vector<int>, std::greater<>> groups;
  for (size_t param = 0; param < params; ++param) {
    std::vector<int>& of_param = users[param];
    if (of_param.empty())
      for (size_t block = 0; block < blocks.size(); ++block)
        of_param.push_back(static_cast<int>(block));
    groups[of_param].push_back(static_cast<int>(param));
  }
  return {groups.begin(), groups.end()};
}

[[noreturn]] void break_off(const TensorSpec& spec, const std::string& what) {
  throw Error(ErrorCode::internal, "plan", fmt::format("'{}' {}", spec.name, what));
}

void check_rows(const RowShards& shards, std::span<const TensorSpec> params) {
  for (size_t i = 0; i < params.size(); ++i) {
    const auto& rows = shards.rows[i];
    if (rows.empty()) continue;
    if (!can_be_divided(params[i])) break_off(params[i], "is divided, but has no rows");
    int64_t next = 0;
    for (const RowRange& range : rows) {
      if (range.from != next || range.to < range.from)
        break_off(params[i],
                  fmt::format("has rows [{}, {}) after row {}", range.from, range.to, next));
      next = range.to;
    }
    if (std::ssize(rows) != shards.ranks || next != params[i].shape.front())
      break_off(params[i], fmt::format("has {} of its {} rows on {} of {} ranks", next,
                                       params[i].shape.front(), rows.size(), shards.ranks));
  }
}

void check_unit(const RowShards& shards, const RowUnit& unit, std::span<const TensorSpec> params) {
  for (size_t rank = 0; rank < static_cast<size_t>(shards.ranks); ++rank) {
    int64_t end = 0;
    for (size_t i = 0; i < unit.params.size(); ++i) {
      const TensorSpec& spec = params[static_cast<size_t>(unit.params[i])];
      const RowRange& rows = shards.rows[static_cast<size_t>(unit.params[i])][rank];
      if (unit.offsets[rank][i] < end) break_off(spec, "overlaps another parameter in its unit");
      end = unit.offsets[rank][i] + rows.count() * row_elements(spec);
      if (end > unit.block_elements) break_off(spec, "does not fit into its unit");
      if (unit.is_in_place && (unit.params.size() > 1 || end != unit.block_elements))
        break_off(spec, "travels alone, but its ranks own different numbers of rows");
    }
  }
}

}  // namespace

bool uses(const RowUnit& unit, int block) {
  return std::ranges::find(unit.blocks, block) != unit.blocks.end();
}

int64_t RowShards::elements_of(int rank, std::span<const TensorSpec> params,
                               bool trainable) const {
  int64_t elements = 0;
  for (size_t i = 0; i < params.size(); ++i)
    if (!rows[i].empty() && params[i].trainable == trainable)
      elements += rows[i][static_cast<size_t>(rank)].count() * row_elements(params[i]);
  return elements;
}

Json RowShards::to_json() const {
  Json json = {{"ranks", ranks}, {"rows", Json::array()}, {"units", Json::array()}};
  for (const auto& of_param : rows) {
    Json ranges = Json::array();
    for (const auto& [from, to] : of_param) ranges.push_back({from, to});
    json["rows"].push_back(std::move(ranges));
  }
  for (const RowUnit& unit : units)
    json["units"].push_back({{"dtype", to_string(unit.dtype)},
                             {"params", unit.params},
                             {"blocks", unit.blocks},
                             {"block_elements", unit.block_elements},
                             {"in_place", unit.is_in_place}});
  return json;
}

RowShards plan_row_shards(std::span<const TensorSpec> params,
                          std::span<const std::vector<int>> blocks, int ranks,
                          const RowShardOptions& options) {
  if (ranks < 1)
    throw Error(ErrorCode::invalid_argument, "plan",
                fmt::format("parameters cannot be divided among {} ranks", ranks), "at least 1");
  RowPlanner planner(params, ranks, options);
  for (const auto& [users, together] : by_blocks(params.size(), blocks))
    planner.add(together, users);
  return planner.take();
}

void check(const RowShards& shards, std::span<const TensorSpec> params) {
  if (shards.rows.size() != params.size())
    throw Error(ErrorCode::internal, "plan",
                fmt::format("the shards are of {} parameters, not of {}", shards.rows.size(),
                            params.size()));
  check_rows(shards, params);
  std::vector<int> units_of(params.size(), 0);
  for (const RowUnit& unit : shards.units) {
    for (const int param : unit.params) {
      const TensorSpec& spec = params[static_cast<size_t>(param)];
      if (spec.dtype != unit.dtype || spec.trainable != unit.trainable)
        break_off(spec, "is in a unit of another type");
      if (!shards.divides(param)) break_off(spec, "travels in a unit, but is not divided");
      ++units_of[static_cast<size_t>(param)];
    }
    check_unit(shards, unit, params);
  }
  for (size_t i = 0; i < params.size(); ++i)
    if (units_of[i] != (shards.rows[i].empty() ? 0 : 1))
      break_off(params[i], fmt::format("travels in {} units", units_of[i]));
}

}  // namespace trireme::plan
