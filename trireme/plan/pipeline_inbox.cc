#include <trireme/plan/pipeline_inbox.h>
#include <algorithm>
#include <map>

namespace trireme::plan {

std::vector<PipelineInbox> inboxes_of(const PipelinePlan& plan, int stage,
                                      const std::vector<bool>& has_samples) {
  const auto takes_place = [&](const PipelineStep& step) {
    return has_samples[static_cast<size_t>(step.microbatch)];
  };
  std::map<int, int> numbers;  // [tag]: the place of a message among those to the same stage.
  std::map<int, int> sent_to;  // [stage]
  for (const PipelineStep& step : plan.steps[static_cast<size_t>(stage)])
    if (const auto message = plan.sends(step); message && takes_place(step))
      numbers.emplace(plan.tag_of(*message), ++sent_to[message->to]);

  std::vector<PipelineInbox> inboxes;
  for (int other = 0; other < plan.facts.stages; ++other) {
    PipelineInbox inbox{other, {}};
    int needed = 0;
    for (const PipelineStep& step : plan.steps[static_cast<size_t>(other)]) {
      if (!takes_place(step)) continue;
      if (const auto message = plan.needs(step); message && message->from == stage)
        needed = std::max(needed, numbers.at(plan.tag_of(*message)));
      if (const auto message = plan.sends(step); message && message->to == stage)
        inbox.after.push_back(needed);
    }
    if (!inbox.after.empty()) inboxes.push_back(std::move(inbox));
  }
  return inboxes;
}

}  // namespace trireme::plan
