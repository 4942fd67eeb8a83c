// Decides which activations the stages of a pipeline keep. The functions are pure.
#pragma once
#include <trireme/base/json.h>
#include <trireme/plan/memory_plan.h>
#include <trireme/plan/pipeline_memory.h>
#include <cstdint>
#include <vector>

namespace trireme::plan {

struct PipelineMemory {
  std::vector<MemoryDecision> decisions;  // [block]
  std::vector<int64_t> peak_bytes;        // [stage]: predicted.
  Json to_json() const;
  static PipelineMemory from_json(const Json& json);
};

// Decides for each stage by itself. Without a budget, a block is kept only by a rule, or if it is
// the last one and its backward, or the first half of it, follows its forward at once. With a
// budget, which each stage has for itself, the decisions are those with the least added time, by
// the peak of the stage's own steps: of all decisions for up to 8 free blocks, else block after
// block in the order of bytes saved for a second. `options` are those of plan_memory(), without
// nesting. A copy costs the time for which its block does not compute. Throws
// Error(invalid_argument) for a rule that matches no block and for a budget that no decisions keep
// (with the least that works).
PipelineMemory plan_pipeline_memory(const PipelinePlan& plan, const Partition& cut,
                                    const MeasuredChain& chain, const MemoryPlanOptions& options);

}  // namespace trireme::plan
