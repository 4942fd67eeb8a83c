// The messages that a stage of a pipeline gets from each other stage, so that it can receive them
// before the steps that need them.
#pragma once
#include <trireme/plan/pipeline_plan.h>
#include <vector>

namespace trireme::plan {

struct PipelineInbox {
  int from = 0;
  // [message], in the order in which the stage `from` sends them: before it needs no more messages
  // of this stage than so many, of those that this stage sends to it. So a receive that begins
  // when they have left waits for the sender's own work alone, and not for that of this stage.
  std::vector<int> after;
};

// One for each stage that sends to `stage`, ascending. `has_samples`: [micro-batch]; no message
// belongs to one without samples. check() must accept the plan. Pure.
std::vector<PipelineInbox> inboxes_of(const PipelinePlan& plan, int stage,
                                      const std::vector<bool>& has_samples);

}  // namespace trireme::plan
