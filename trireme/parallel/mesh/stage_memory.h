// The plan of the activations of all stages.
#pragma once
#include <trireme/parallel/engine.h>
#include <trireme/parallel/mesh/stage.h>
#include <trireme/plan/pipeline_decisions.h>
#include <vector>

namespace trireme {

// COLLECTIVE over all ranks if memory.policy or memory.rules move activations: rank 0 plans for
// all of them, so that replicas, whose blocks may wait for each other, decide alike. `measured`
// may be empty otherwise; then nothing is predicted. Throws Error on every rank if the options do
// not fit together, nothing is measured, or no plan keeps the budget (with the least that works).
plan::PipelineMemory memory_of_stages(const EngineSetting& setting, const plan::EnginePlan& plan,
                                      const plan::MeasuredChain& measured);

// SwapOptions::read_from for the blocks of a stage: none reads ahead over the end of its part.
std::vector<int> read_from(const std::vector<plan::MemoryDecision>& decisions, const Stage& stage);

// The decisions for the blocks of a stage, in its order.
std::vector<plan::MemoryDecision> decisions_of(const plan::PipelineMemory& memory,
                                               const Stage& stage);

}  // namespace trireme
