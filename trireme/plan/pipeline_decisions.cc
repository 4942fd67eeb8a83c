#include <trireme/plan/pipeline_decisions.h>

#include <fmt/format.h>
#include <trireme/base/error.h>
#include <trireme/base/units.h>
#include <algorithm>
#include <limits>
#include <optional>
#include <utility>

namespace trireme::plan {
namespace {

constexpr size_t kMostBlocksTriedInAllWays = 8;

using Decisions = std::vector<MemoryDecision>;

void check_rules_of(const MeasuredChain& chain, const MemoryPlanOptions& options) {
  for (const MemoryRule& rule : options.rules) {
    const auto is_matched = [&](const MeasuredBlock& block) { return matches(rule, block.name); };
    if (std::ranges::any_of(chain.blocks, is_matched)) continue;
    throw Error(ErrorCode::invalid_argument, "plan",
                fmt::format("memory.rules: no block matches '{}'", rule.pattern),
                fmt::format("the names '{}' to '{}', with * for any text",
                            chain.blocks.front().name, chain.blocks.back().name));
  }
}

std::optional<MemoryDecision> rule_for(const MeasuredBlock& block,
                                       const MemoryPlanOptions& options) {
  std::optional<MemoryDecision> decision;
  for (const MemoryRule& rule : options.rules)
    if (matches(rule, block.name)) decision = rule.decision;
  return decision;
}

// A way to free a block's memory, and what it costs.
struct Release {
  MemoryDecision decision = MemoryDecision::recompute;
  double seconds = 0;  // For a micro-batch.
};

double copy_seconds(const MeasuredChain& chain, const MeasuredBlock& block,
                    const MemoryPlanOptions& options) {
  const auto bytes = static_cast<double>(chain.moved_bytes(block.saved));
  return std::max(0.0, bytes / options.out_bytes_per_second - block.forward_seconds) +
         std::max(0.0, bytes / options.in_bytes_per_second - block.backward_seconds);
}

// The cheapest way that the policy allows.
Release release_of(const MeasuredChain& chain, const MeasuredBlock& block,
                   const MemoryPlanOptions& options) {
  const Release again{MemoryDecision::recompute, block.forward_seconds};
  const bool can_swap = options.out_bytes_per_second > 0 && options.in_bytes_per_second > 0;
  if (options.policy == "recompute" || !can_swap) return again;
  const Release swapped{MemoryDecision::swap, copy_seconds(chain, block, options)};
  return options.policy == "swap" || swapped.seconds < again.seconds ? swapped : again;
}

// Searches the decisions of one stage.
class StageSearch {
 public:
  StageSearch(const PipelinePlan& plan, const Partition& cut, const MeasuredChain& chain,
              const MemoryPlanOptions& options, int stage)
      : plan_(plan), cut_(cut), chain_(chain), options_(options), stage_(stage) {
    for (const int part : plan.parts_of(stage)) {
      const auto [from, to] = cut.blocks_of(part);
      for (int i = from; i < to; ++i)
        if (!rule_for(block(i), options))
          free_.push_back({i, release_of(chain, block(i), options)});
    }
    std::ranges::stable_sort(free_, [&](const Free& a, const Free& b) {
      return freed_by(a) * b.release.seconds > freed_by(b) * a.release.seconds;
    });
  }

  // Puts the best decisions into `decisions`. Returns the least peak that it has seen; it is above
  // the budget if nothing keeps it.
  int64_t decide(Decisions& decisions) {
    decisions_ = decisions;
    if (free_.size() <= kMostBlocksTriedInAllWays) {
      for (uint32_t chosen = 0; chosen < uint32_t{1} << free_.size(); ++chosen)
        offer([&](size_t i) { return (chosen >> i & 1U) != 0; });
    } else {
      for (size_t count = 0; count <= free_.size(); ++count)
        offer([&](size_t i) { return i < count; });
    }
    if (best_) decisions = *best_;
    return least_;
  }

 private:
  struct Free {
    int block = 0;
    Release release;
  };
  const MeasuredBlock& block(int number) const {
    return chain_.blocks[static_cast<size_t>(number)];
  }
  double freed_by(const Free& free) const {
    const SavedInBlock& saved = block(free.block).saved;
    if (free.release.decision != MemoryDecision::recompute)
      return static_cast<double>(chain_.moved_bytes(saved));
    return static_cast<double>(saved.inner_bytes + chain_.bytes_of(saved.values));
  }

  template <typename IsReleased>
  void offer(const IsReleased& is_released) {
    double seconds = 0;
    for (size_t i = 0; i < free_.size(); ++i) {
      const auto place = static_cast<size_t>(free_[i].block);
      decisions_[place] = is_released(i) ? free_[i].release.decision : MemoryDecision::keep;
      if (is_released(i)) seconds += free_[i].release.seconds;
    }
    const int64_t peak = peak_activations(plan_, cut_, chain_, decisions_, stage_);
    least_ = std::min(least_, peak);
    if (peak > options_.budget_bytes || (best_ && seconds >= best_seconds_)) return;
    best_ = decisions_;
    best_seconds_ = seconds;
  }

  const PipelinePlan& plan_;
  const Partition& cut_;
  const MeasuredChain& chain_;
  const MemoryPlanOptions& options_;
  const int stage_;
  std::vector<Free> free_;  // The blocks without a rule, the most bytes for a second first.
  Decisions decisions_;
  std::optional<Decisions> best_;
  double best_seconds_ = 0;
  int64_t least_ = std::numeric_limits<int64_t>::max();
};

void keep_budget(const PipelinePlan& plan, const Partition& cut, const MeasuredChain& chain,
                 const MemoryPlanOptions& options, Decisions& decisions) {
  int64_t least = 0;
  int worst = 0;
  for (int stage = 0; stage < plan.facts.stages; ++stage) {
    const int64_t of_stage = StageSearch(plan, cut, chain, options, stage).decide(decisions);
    if (of_stage > least) worst = stage;
    least = std::max(least, of_stage);
  }
  if (least <= options.budget_bytes) return;
  throw Error(
      ErrorCode::invalid_argument, "plan",
      fmt::format("no plan with memory.policy={} keeps the budget of {} ({} bytes) on stage "
                  "{}: the least that works is {} ({} bytes)",
                  options.policy, format_bytes(options.budget_bytes), options.budget_bytes, worst,
                  format_bytes(least), least),
      fmt::format("memory.budget={}, or more pipeline.microbatches", least));
}

// Whether each forward of the last part is followed by its backward, or the first half of it.
bool returns_at_once(const PipelinePlan& plan) {
  const int last = plan.parts() - 1;
  const auto& steps = plan.steps[static_cast<size_t>(plan.stage_of(last))];
  for (size_t i = 0; i < steps.size(); ++i) {
    if (steps[i].part != last || steps[i].task != PipelineTask::forward) continue;
    const bool is_its_backward = i + 1 < steps.size() && steps[i + 1].part == last &&
                                 steps[i + 1].microbatch == steps[i].microbatch;
    if (!is_its_backward) return false;
  }
  return true;
}

}  // namespace

Json PipelineMemory::to_json() const {
  Json json = {{"decisions", Json::array()}, {"peak_bytes", peak_bytes}};
  for (const MemoryDecision decision : decisions)
    json["decisions"].push_back(static_cast<int>(decision));
  return json;
}

PipelineMemory PipelineMemory::from_json(const Json& json) {
  PipelineMemory memory;
  for (const Json& decision : json.at("decisions"))
    memory.decisions.push_back(static_cast<MemoryDecision>(decision.get<int>()));
  memory.peak_bytes = json.at("peak_bytes").get<std::vector<int64_t>>();
  return memory;
}

PipelineMemory plan_pipeline_memory(const PipelinePlan& plan, const Partition& cut,
                                    const MeasuredChain& chain, const MemoryPlanOptions& options) {
  check_rules_of(chain, options);
  PipelineMemory memory;
  for (const MeasuredBlock& block : chain.blocks) {
    const bool is_free = options.policy == "none" || options.budget_bytes > 0;
    const MemoryDecision usual =
        is_free ? MemoryDecision::keep : release_of(chain, block, options).decision;
    memory.decisions.push_back(rule_for(block, options).value_or(usual));
  }
  if (returns_at_once(plan) && !rule_for(chain.blocks.back(), options))
    memory.decisions.back() = MemoryDecision::keep;
  if (options.budget_bytes > 0) keep_budget(plan, cut, chain, options, memory.decisions);
  for (int stage = 0; stage < plan.facts.stages; ++stage)
    memory.peak_bytes.push_back(peak_activations(plan, cut, chain, memory.decisions, stage));
  return memory;
}

}  // namespace trireme::plan
