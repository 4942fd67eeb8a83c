// The blocks of a configuration's model, measured before a run, for plans that depend on their
// seconds and bytes: pipeline.cut by time or memory, and memory.policy.
#pragma once
#include <trireme/plan/engine_plan.h>
#include <trireme/plan/memory_plan.h>
#include <trireme/plan/partition.h>
#include <trireme/plan/pipeline_decisions.h>
#include <trireme/run/config.h>
#include <memory>
#include <vector>

namespace trireme {

// Used by one thread.
class MeasuredModel {
 public:
  // Makes the model and the first batch, as rank 0 of the run would. Throws as training_of() does.
  MeasuredModel(const Config& config, const ResolvedStrategy& strategy);
  ~MeasuredModel();

  // The costs of the model's blocks, for the cut of a mesh. Measures on the first micro-batch.
  std::vector<plan::BlockCost> costs();
  // The plan of the stages' activations, for a plan with a pipeline.
  plan::PipelineMemory memory_of_stages(const plan::EnginePlan& plan);
  // The plan of a replica's activations, for any other strategy. Throws Error(invalid_argument) if
  // no plan keeps memory.budget.
  plan::MemoryPlan memory_of_replica();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace trireme
