// The messages that a stage of a pipeline gets from each other stage, so that it can receive them
// before the steps that need them.
#pragma once
#include <trireme/plan/pipeline_plan.h>
#include <vector>

namespace trireme::plan {

struct PipelineInbox {
  int from = 0;
  // [message], in the order in which the stage `from` sends them: it depends on so many messages
  // of this stage, to any other one. So a receive that begins when they have left does not wait
  // for work of this stage, also where parts of the model come back to it by way of other stages.
  std::vector<int> after;
};

// One for each stage that sends to `stage`, ascending. `has_samples`: [micro-batch]; no message
// belongs to one without samples. check() must accept the plan. Pure.
std::vector<PipelineInbox> inboxes_of(const PipelinePlan& plan, int stage,
                                      const std::vector<bool>& has_samples);

}  // namespace trireme::plan
