#include <trireme/plan/memory_plan.h>

#include <fmt/format.h>
#include <trireme/base/error.h>
#include <trireme/base/units.h>
#include <trireme/plan/memory_decisions.h>
#include <trireme/plan/memory_nested.h>
#include <algorithm>
#include <cmath>
#include <limits>

namespace trireme::plan {
namespace {

constexpr int64_t kMostBytes = int64_t{1} << 50;

[[noreturn]] void refuse_memory_plan(const std::string& what, const std::string& remedy = {}) {
  throw Error(ErrorCode::invalid_argument, "plan", what, remedy);
}

[[noreturn]] void broken_memory_plan(const std::string& what) {
  throw Error(ErrorCode::internal, "plan", "memory: " + what);
}

bool matches_text(std::string_view pattern, std::string_view text) {
  // The last star may stand for a longer text than so far.
  size_t p = 0, t = 0, star = std::string_view::npos, after_star = 0;
  while (t < text.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      after_star = t;
    } else if (p < pattern.size() && pattern[p] == text[t]) {
      ++p, ++t;
    } else if (star != std::string_view::npos) {
      p = star + 1;
      t = ++after_star;
    } else {
      return false;
    }
  }
  return pattern.find_first_not_of('*', p) == std::string_view::npos;
}

void check_memory_blocks(std::span<const BlockMemory> blocks) {
  if (blocks.empty()) refuse_memory_plan("the chain has no blocks");
  for (const BlockMemory& block : blocks) {
    for (const double seconds : {block.forward_seconds, block.backward_seconds})
      if (!(seconds >= 0 && std::isfinite(seconds)))
        refuse_memory_plan(fmt::format("block '{}' takes {} s", block.name, seconds));
    for (const int64_t bytes :
         {block.inner_bytes, block.still_bytes, block.inner_bytes - block.still_bytes,
          block.input_bytes, block.output_bytes, block.forward_extra_bytes,
          block.backward_extra_bytes})
      if (bytes < 0 || bytes > kMostBytes)
        refuse_memory_plan(fmt::format("block '{}' takes {} bytes", block.name, bytes));
  }
}

bool can_swap(const MemoryPlanOptions& options) {
  return options.out_bytes_per_second > 0 && options.in_bytes_per_second > 0;
}
bool can_compress(const MemoryPlanOptions& options) { return options.compressed_fraction > 0; }

void check_memory_options(const MemoryPlanOptions& options) {
  const bool known = options.policy == "none" || options.policy == "recompute" ||
                     options.policy == "swap" || options.policy == "auto";
  if (!known)
    refuse_memory_plan(fmt::format("memory.policy is '{}'", options.policy),
                       "none, recompute, swap or auto");
  if (options.budget_bytes < 0)
    refuse_memory_plan(fmt::format("memory.budget is {} bytes", options.budget_bytes),
                       "0 for no budget");
  for (const double rate : {options.out_bytes_per_second, options.in_bytes_per_second})
    if (!(rate >= 0 && std::isfinite(rate)))
      refuse_memory_plan(fmt::format("swapping moves {} bytes per second", rate));
  if (!(options.compressed_fraction >= 0 && options.compressed_fraction <= 1))
    refuse_memory_plan(
        fmt::format("compression leaves {} of each byte", options.compressed_fraction),
        "a fraction from 0 to 1");
  if (!(options.compress_seconds_per_byte >= 0 &&
        std::isfinite(options.compress_seconds_per_byte)))
    refuse_memory_plan(
        fmt::format("compression takes {} s for a byte", options.compress_seconds_per_byte));
  if (options.policy == "swap" && !can_swap(options))
    refuse_memory_plan("memory.policy is swap, and no bandwidth of swapping is known",
                       "memory.policy=recompute");
}

void check_memory_rule(const MemoryRule& rule, const MemoryPlanOptions& options) {
  if (rule.decision == MemoryDecision::swap && !can_swap(options))
    refuse_memory_plan(
        fmt::format("a rule swaps '{}', and no bandwidth of swapping is known", rule.pattern),
        "recompute");
  if (rule.decision == MemoryDecision::compress && !can_compress(options))
    refuse_memory_plan(
        fmt::format("a rule compresses '{}', and no fraction of compression is known",
                    rule.pattern),
        "recompute");
}

AllowedDecisions allowed_by(std::span<const BlockMemory> blocks,
                            const MemoryPlanOptions& options) {
  const bool free = options.policy == "auto";
  AllowedDecisions allowed;
  for (size_t i = 0; i < blocks.size(); ++i) {
    const bool moves =
        options.budget_bytes == 0 && !free && options.policy != "none" && i + 1 < blocks.size();
    const bool has_budget = options.budget_bytes > 0;
    allowed.push_back(
        {!moves, (free && has_budget) || (options.policy == "recompute" && (moves || has_budget)),
         (free && has_budget && can_swap(options)) ||
             (options.policy == "swap" && (moves || has_budget)),
         free && has_budget && can_compress(options) && !options.compresses_by_rule_only});
  }
  for (const MemoryRule& rule : options.rules) {
    check_memory_rule(rule, options);
    bool used = false;
    for (size_t i = 0; i < blocks.size(); ++i) {
      if (!matches(rule, blocks[i].name)) continue;
      used = true;
      allowed[i] = {};
      allowed[i][static_cast<size_t>(rule.decision)] = true;
    }
    if (!used) {
      std::vector<std::string_view> names;
      for (const BlockMemory& block : blocks) names.push_back(block.name);
      const std::string near = nearest_word(rule.pattern, names.data(), names.size());
      refuse_memory_plan(
          fmt::format("no block matches '{}'{}", rule.pattern,
                      near.empty() ? "" : fmt::format("; the nearest is '{}'", near)),
          fmt::format("the names '{}' to '{}', with * for any text", names.front(), names.back()));
    }
  }
  return allowed;
}

bool may_nest(const MemoryPlanOptions& options, size_t blocks) {
  return options.can_nest && options.budget_bytes > 0 && options.rules.empty() &&
         (options.policy == "recompute" || options.policy == "auto") &&
         blocks <= kMostNestedBlocks;
}

bool any_swap(const AllowedDecisions& allowed) {
  return std::any_of(allowed.begin(), allowed.end(), [](const auto& of_block) {
    return of_block[static_cast<size_t>(MemoryDecision::swap)];
  });
}

// Blocks that run forward once are kept; all others are computed again.
MemoryDecisions decisions_of(std::span<const MemoryOperation> operations, size_t blocks) {
  MemoryDecisions decisions(blocks, MemoryDecision::keep);
  for (const MemoryOperation& operation : operations)
    if (operation.kind == MemoryKind::forward_checkpoint ||
        operation.kind == MemoryKind::forward_nothing)
      decisions[static_cast<size_t>(operation.block)] = MemoryDecision::recompute;
  return decisions;
}

std::optional<MemorySchedule> fastest_schedule(const MemoryChain& chain,
                                               const AllowedDecisions& allowed,
                                               const MemoryPlanOptions& options,
                                               int64_t keep_all_bytes) {
  const int64_t budget =
      options.budget_bytes > 0 ? options.budget_bytes : std::numeric_limits<int64_t>::max();
  std::optional<MemorySchedule> best;
  const auto offer = [&](std::optional<MemorySchedule> other) {
    if (other && (!best || other->use.seconds < best->use.seconds * (1 - 1e-9)))
      best = std::move(other);
  };
  AllowedDecisions without_swap = allowed;
  for (auto& of_block : without_swap) of_block[static_cast<size_t>(MemoryDecision::swap)] = false;
  if (const auto decisions = decide(chain, without_swap, budget, {}))
    offer(schedule(chain, *decisions, budget));
  if (any_swap(allowed)) {
    if (options.budget_bytes > 0) {
      offer(best_mix(chain, allowed, budget));
    } else if (const auto decisions = decide(chain, allowed, budget, {})) {
      // Nothing says how much memory copies may take for their time.
      MemorySchedule plain{
          *decisions, operations_of(*decisions, SwapTimes::beside_next(chain.size())), {}};
      plain.use = simulate(chain, plain.operations);
      offer(std::move(plain));
    }
  }
  if (may_nest(options, chain.size())) {
    const auto offer_nested = [&](std::vector<MemoryOperation> operations) {
      const MemoryUse use = simulate(chain, operations);
      if (use.peak_bytes <= budget)
        offer(MemorySchedule{decisions_of(operations, chain.size()), std::move(operations), use});
    };
    const bool keeps_all = best && best->use.seconds <= chain.seconds();
    if (!keeps_all) {
      if (auto operations = fastest_nested(chain, budget, keep_all_bytes))
        offer_nested(std::move(*operations));
      offer_nested(least_nested(chain).operations);
    }
  }
  return best;
}

[[noreturn]] void refuse_budget(const MemoryChain& chain, const AllowedDecisions& allowed,
                                const MemoryPlanOptions& options) {
  int64_t least = least_budget(chain, allowed);
  if (may_nest(options, chain.size())) least = std::min(least, least_nested(chain).bytes);
  refuse_memory_plan(
      fmt::format(
          "no plan with memory.policy={} keeps the budget of {} ({} bytes): the least that "
          "works is {} ({} bytes)",
          options.policy, format_bytes(options.budget_bytes), options.budget_bytes,
          format_bytes(least), least),
      fmt::format("memory.budget={}{}", least,
                  options.policy == "auto" ? "" : ", or memory.policy=auto"));
}

}  // namespace

bool matches(const MemoryRule& rule, std::string_view block) {
  return matches_text(rule.pattern, block);
}

MemoryPlan plan_memory(std::vector<BlockMemory> blocks, const MemoryPlanOptions& options) {
  check_memory_blocks(blocks);
  check_memory_options(options);
  MemoryPlan plan;
  plan.options = options;
  plan.blocks = std::move(blocks);
  const MemoryChain chain(plan.blocks, options);
  const AllowedDecisions allowed = allowed_by(plan.blocks, options);
  const SwapTimes times = SwapTimes::in_turn(chain.size());
  const MemoryUse keep_all =
      simulate(chain, operations_of(MemoryDecisions(chain.size(), MemoryDecision::keep), times));
  plan.keep_all_bytes = keep_all.peak_bytes;
  plan.keep_all_seconds = keep_all.seconds;
  auto best = fastest_schedule(chain, allowed, options, keep_all.peak_bytes);
  if (!best) refuse_budget(chain, allowed, options);
  for (size_t i = 0; i < chain.size(); ++i) plan.blocks[i].decision = best->decisions[i];
  plan.peak_bytes = best->use.peak_bytes;
  plan.seconds = best->use.seconds;
  plan.waiting_seconds = best->use.waiting_seconds;
  const bool moves = std::any_of(best->decisions.begin(), best->decisions.end(), [](auto d) {
    return d == MemoryDecision::swap || d == MemoryDecision::compress;
  });
  plan.is_nested = !moves && best->operations != operations_of(best->decisions, times);
  plan.operations = std::move(best->operations);
  return plan;
}

std::vector<int> last_blocks_with_room(std::span<const MemoryDecision> decisions) {
  const int last = static_cast<int>(decisions.size()) - 1;
  std::vector<int> rooms(decisions.size());
  for (int i = last, free = last; i >= 0; --i) {
    const auto place = static_cast<size_t>(i);
    const bool takes_memory = decisions[place] == MemoryDecision::recompute ||
                              decisions[place] == MemoryDecision::compress;
    if (takes_memory) free = i - 1;
    rooms[place] = std::max(free, i);
  }
  return rooms;
}

std::vector<int> MemoryPlan::read_from() const {
  const int last = static_cast<int>(blocks.size()) - 1;
  std::vector<int> from(blocks.size());
  int backward = last;  // The block whose backward comes next.
  for (const MemoryOperation& operation : operations) {
    if (operation.kind == MemoryKind::backward) backward = operation.block - 1;
    if (operation.kind == MemoryKind::swap_in)
      from[static_cast<size_t>(operation.block)] = backward;
  }
  std::vector<MemoryDecision> decisions;
  for (const BlockMemory& block : blocks) decisions.push_back(block.decision);
  const std::vector<int> rooms = last_blocks_with_room(decisions);
  for (size_t i = 0; i < from.size(); ++i) from[i] = std::max(from[i], rooms[i]);
  return from;
}

void check(const MemoryPlan& plan) {
  const MemoryChain chain(plan.blocks, plan.options);
  const MemoryUse use = simulate(chain, plan.operations);
  if (plan.options.budget_bytes > 0 && use.peak_bytes > plan.options.budget_bytes)
    broken_memory_plan(fmt::format("the peak is {} bytes, and the budget {}", use.peak_bytes,
                                   plan.options.budget_bytes));
  if (use.peak_bytes != plan.peak_bytes)
    broken_memory_plan(fmt::format("the peak is {} bytes, and {} are predicted", use.peak_bytes,
                                   plan.peak_bytes));
  if (!(std::abs(use.seconds - plan.seconds) <= 1e-9 * (1 + use.seconds)))
    broken_memory_plan(
        fmt::format("the step takes {} s, and {} are predicted", use.seconds, plan.seconds));
}

}  // namespace trireme::plan
