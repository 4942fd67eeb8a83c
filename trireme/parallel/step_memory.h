// The memory of a replica's steps: it measures the model in the first one, plans, and runs every
// forward under the plan.
#pragma once
#include <trireme/parallel/activation_memory.h>
#include <trireme/parallel/engine.h>
#include <trireme/plan/memory_plan.h>
#include <cstdint>

namespace trireme {

// The options of plans. They measure the speed of options.swap_dir: throws Error(io).
plan::MemoryPlanOptions memory_plan_options(const MemoryOptions& options);
// "3 keep, 2 recompute"
std::string counts_as_text(const std::vector<plan::MemoryDecision>& decisions);

// Used by one thread.
class StepMemory {
 public:
  // `setting` must outlive the object. Throws Error(invalid_argument) if its MemoryOptions do not
  // fit together.
  explicit StepMemory(const EngineSetting& setting);

  // Called before the passes of each step, with the first of them, under its autocast. The first
  // call that has samples plans. With batch norms over all replicas the first call is COLLECTIVE:
  // rank 0 plans for all, so that their backwards meet in the same order. Throws
  // Error(invalid_argument) if no plan keeps the budget (with the least that works).
  void begin_step(const Batch& pass);
  // The loss of a pass, or the model's output if it has no samples.
  at::Tensor loss_of(const Batch& pass);
  at::Tensor output_of(const Batch& pass);

  // The plan that begin_step() makes of a pass with samples; it changes nothing.
  plan::MemoryPlan planned(const Batch& pass);
  MemoryUse use() const;

 private:
  bool is_plain() const { return setting_.memory.is_plain(); }
  void follow(const Json& plan);
  ActivationMemory::Surroundings surroundings() const;

  const EngineSetting& setting_;
  ActivationMemory memory_;
  // The peak by the plan; without a plan the bytes of the first micro-batch, the largest of a
  // step. 0 before these are known.
  int64_t predicted_bytes_ = 0;
  double predicted_slowdown_ = 0;
  bool is_ready_ = false;
  int64_t steps_ = 0;
};

}  // namespace trireme
