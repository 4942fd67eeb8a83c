#include <trireme/parallel/memory_options.h>

#include <fmt/format.h>
#include <trireme/base/error.h>
#include <trireme/config/row.h>
#include <algorithm>
#include <array>
#include <string_view>

namespace trireme {
namespace {

constexpr std::array<plan::MemoryDecision, 4> kDecisions = {
    plan::MemoryDecision::keep, plan::MemoryDecision::recompute, plan::MemoryDecision::swap,
    plan::MemoryDecision::compress};

[[noreturn]] void refuse_memory(const std::string& what, const std::string& remedy) {
  throw Error(ErrorCode::invalid_argument, "config", what, remedy);
}

plan::MemoryRule parse_rule(std::string_view text, const std::string& whole) {
  const auto equals = text.rfind('=');
  if (equals == std::string_view::npos || equals == 0)
    refuse_memory(fmt::format("memory.rules is '{}': '{}' is no pattern=decision", whole, text),
                  "memory.rules=layer1*=recompute,head=keep");
  for (const plan::MemoryDecision decision : kDecisions)
    if (plan::to_string(decision) == text.substr(equals + 1))
      return {std::string(text.substr(0, equals)), decision};
  refuse_memory(
      fmt::format("memory.rules is '{}': '{}' is no decision", whole, text.substr(equals + 1)),
      "keep, recompute, swap or compress");
}

}  // namespace

config::Rows rows_of(const MemoryOptions*) {
  using O = MemoryOptions;
  return config::all_of<O>(
      {config::row(
           &O::policy,
           {.name = "memory.policy",
            .meaning = "Where activations are between forward and backward: in memory (none), "
                       "computed again (recompute), in a file (swap), or each block's by what "
                       "costs least (auto); docs/memory.md.",
            .choices = config::one_of({"none", "recompute", "swap", "auto"})}),
       config::row(
           &O::budget,
           {.name = "memory.budget",
            .meaning = "The bytes that the activations of a replica, or of a stage, may take. "
                       "Only as many "
                       "blocks are computed again or swapped as that needs; 0: no budget.",
            .range = config::at_least(0),
            .kind = config::Kind::bytes}),
       config::row(&O::rules, {.name = "memory.rules",
                               .meaning = "Decisions for single blocks, such as "
                                          "`layer1*=recompute,head=keep`: keep, recompute, swap, "
                                          "compress (to bfloat16). The last match counts."}),
       config::row(&O::offload,
                   {.name = "memory.offload",
                    .meaning = "What lies in files of memory.swap_dir, of which steps have only "
                               "parts in memory: the optimizer's state (optimizer), the "
                               "parameters and gradients too (parameters), or nothing (none).",
                    .choices = config::one_of({"none", "optimizer", "parameters"})}),
       config::row(&O::swap_dir, {.name = "memory.swap_dir",
                                  .meaning = "The folder of swapped activations and offloaded "
                                             "state, on a fast disk of the host.",
                                  .agreed = false})});
}

std::vector<plan::MemoryRule> parse_memory_rules(const std::string& text) {
  std::vector<plan::MemoryRule> rules;
  for (size_t from = 0; from < text.size();) {
    const size_t comma = std::min(text.find(',', from), text.size());
    rules.push_back(parse_rule(std::string_view(text).substr(from, comma - from), text));
    from = comma + 1;
  }
  return rules;
}

void check(const MemoryOptions& options) {
  bool swaps = options.policy == "swap";
  for (const plan::MemoryRule& rule : parse_memory_rules(options.rules))
    swaps = swaps || rule.decision == plan::MemoryDecision::swap;
  if (swaps && options.swap_dir.empty())
    refuse_memory("activations are to be swapped, but memory.swap_dir is empty",
                  "memory.swap_dir=FOLDER, or memory.policy=recompute");
  if (options.offload != "none" && options.swap_dir.empty())
    refuse_memory(
        fmt::format("memory.offload is {}, but memory.swap_dir is empty", options.offload),
        "memory.swap_dir=FOLDER, or memory.offload=none");
  if (options.policy == "auto" && options.budget == 0)
    refuse_memory("memory.policy is auto, but memory.budget is 0",
                  "memory.budget=2GiB, or another memory.policy");
  if (options.policy == "none" && options.budget > 0)
    refuse_memory("memory.budget is given, but memory.policy is none: everything is kept",
                  "memory.policy=auto");
}

}  // namespace trireme
