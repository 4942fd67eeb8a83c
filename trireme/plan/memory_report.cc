#include <fmt/format.h>

#include <trireme/base/error.h>
#include <trireme/base/units.h>
#include <trireme/plan/memory_plan.h>
#include <trireme/plan/memory_simulation.h>
#include <algorithm>

namespace trireme::plan {
namespace {

constexpr size_t kLineColumns = 96;

std::string_view short_name(MemoryOperation::Kind kind) {
  switch (kind) {
    case MemoryKind::forward_all: return "F_all";
    case MemoryKind::forward_checkpoint: return "F_checkpoint";
    case MemoryKind::forward_nothing: return "F_nothing";
    case MemoryKind::loss: return "loss";
    case MemoryKind::backward: return "B";
    case MemoryKind::swap_out: return "swap_out";
    case MemoryKind::wait_out: return "wait_out";
    case MemoryKind::swap_in: return "swap_in";
    case MemoryKind::wait_in: return "wait_in";
    case MemoryKind::compress: return "compress";
    case MemoryKind::decompress: return "decompress";
  }
  throw Error(ErrorCode::internal, "plan",
              fmt::format("no operation has the number {}", static_cast<int>(kind)));
}

// The operations, in lines.
std::string lines_of(const std::vector<MemoryOperation>& operations) {
  std::string text, line = "  operations:";
  for (const MemoryOperation& operation : operations) {
    const std::string word = " " + to_string(operation);
    if (line.size() + word.size() > kLineColumns) {
      text += line + "\n";
      line = "   ";
    }
    line += word;
  }
  return text + line + "\n";
}

}  // namespace

std::string_view to_string(MemoryDecision decision) {
  switch (decision) {
    case MemoryDecision::keep: return "keep";
    case MemoryDecision::recompute: return "recompute";
    case MemoryDecision::swap: return "swap";
    case MemoryDecision::compress: return "compress";
  }
  throw Error(ErrorCode::internal, "plan",
              fmt::format("no decision has the number {}", static_cast<int>(decision)));
}

std::string to_string(const MemoryOperation& operation) {
  if (operation.kind == MemoryKind::loss) return "loss";
  return fmt::format("{}({})", short_name(operation.kind), operation.block);
}

std::string MemoryPlan::describe() const {
  std::string text = fmt::format(
      "memory: policy {}, budget {}: peak {}, {} if all is kept, {:.3f}x its time", options.policy,
      options.budget_bytes > 0 ? format_bytes(options.budget_bytes) : "none",
      format_bytes(peak_bytes), format_bytes(keep_all_bytes), slowdown());
  if (waiting_seconds > 0)
    text += fmt::format(", {:.3f} ms wait for copies", 1e3 * waiting_seconds);
  text += '\n';
  size_t width = 0;
  for (const BlockMemory& block : blocks) width = std::max(width, block.name.size());
  const MemoryChain chain(blocks, options);
  for (size_t i = 0; i < blocks.size(); ++i) {
    const auto runs =
        std::count_if(operations.begin(), operations.end(), [&](const auto& operation) {
          return operation.block == static_cast<int>(i) &&
                 operation.kind <= MemoryKind::forward_nothing;
        });
    text +=
        fmt::format("{:>6}  {:<{}}  {:<9}  input {:>8}  inner {:>8}  forward {:.3f} ms{}\n", i,
                    blocks[i].name, width, to_string(blocks[i].decision), format_bytes(chain.x[i]),
                    format_bytes(blocks[i].inner_bytes), 1e3 * blocks[i].forward_seconds,
                    runs > 1 ? fmt::format(" x {}", runs) : "");
  }
  return is_nested ? text + lines_of(operations) : text;
}

Json MemoryPlan::to_json() const {
  Json json = {{"policy", options.policy},
               {"budget_bytes", options.budget_bytes},
               {"peak_bytes", peak_bytes},
               {"keep_all_bytes", keep_all_bytes},
               {"seconds", seconds},
               {"keep_all_seconds", keep_all_seconds},
               {"waiting_seconds", waiting_seconds},
               {"nested", is_nested},
               {"blocks", Json::array()},
               {"operations", Json::array()}};
  for (const BlockMemory& block : blocks)
    json["blocks"].push_back({{"name", block.name}, {"decision", to_string(block.decision)}});
  for (const MemoryOperation& operation : operations)
    json["operations"].push_back(to_string(operation));
  return json;
}

}  // namespace trireme::plan
