#include <fmt/ranges.h>

#include <trireme/base/error.h>
#include <trireme/base/log.h>
#include <trireme/base/units.h>
#include <trireme/parallel/agreement.h>
#include <trireme/parallel/mesh/stage_memory.h>
#include <trireme/parallel/step_memory.h>
#include <span>

namespace trireme {
namespace {

void log_memory_of_stages(const EngineSetting& setting, const plan::PipelineMemory& memory) {
  std::vector<std::string> peaks;
  for (const int64_t bytes : memory.peak_bytes) peaks.push_back(format_bytes(bytes));
  log_info("memory.policy {}: activations of the stages take {} at most; blocks: {}",
           setting.memory.policy, fmt::join(peaks, ", "), counts_as_text(memory.decisions));
}

}  // namespace

plan::PipelineMemory memory_of_stages(const EngineSetting& setting, const plan::EnginePlan& plan,
                                      const plan::MeasuredChain& measured) {
  const plan::PipelinePlan& pipeline = *plan.pipeline;
  if (setting.memory.is_plain()) {
    plan::PipelineMemory memory;
    for (int stage = 0; stage < pipeline.facts.stages; ++stage)
      memory.peak_bytes.push_back(
          measured.empty() ? 0 : peak_activations(pipeline, *plan.cut, measured, {}, stage));
    return memory;
  }
  const auto planned = [&] {
    check(setting.memory);
    if (measured.empty())
      throw Error(ErrorCode::invalid_argument, "parallel",
                  "memory.policy and memory.rules need a sample of the data, on which the blocks "
                  "are measured",
                  "EngineSetting::sample, or memory.policy=none");
    return plan_pipeline_memory(pipeline, *plan.cut, measured,
                                memory_plan_options(setting.memory));
  };
  auto memory = plan::PipelineMemory::from_json(
      found_by_first(*setting.group, [&] { return planned().to_json(); }));
  if (setting.group->rank() == 0) log_memory_of_stages(setting, memory);
  return memory;
}

std::vector<plan::MemoryDecision> decisions_of(const plan::PipelineMemory& memory,
                                               const Stage& stage) {
  std::vector<plan::MemoryDecision> decisions;
  for (const PipelinePart& part : stage.parts)
    for (size_t i = 0; i < part.blocks.size(); ++i)
      decisions.push_back(memory.decisions.empty()
                              ? plan::MemoryDecision::keep
                              : memory.decisions[static_cast<size_t>(part.first_block) + i]);
  return decisions;
}

std::vector<int> read_from(const std::vector<plan::MemoryDecision>& decisions,
                           const Stage& stage) {
  std::vector<int> from;
  for (const PipelinePart& part : stage.parts) {
    const auto own = std::span(decisions).subspan(part.first_own, part.blocks.size());
    for (const int room : plan::last_blocks_with_room(own))
      from.push_back(static_cast<int>(part.first_own) + room);
  }
  return from;
}

}  // namespace trireme
