#include <trireme/plan/pipeline_inbox.h>
#include <algorithm>
#include <map>

namespace trireme::plan {
namespace {

// Runs all stages on paper, and notes for each stage how many messages of one of them its steps so
// far depend on, directly or by way of other stages.
class InboxesOnPaper {
 public:
  InboxesOnPaper(const PipelinePlan& plan, int stage, const std::vector<bool>& has_samples)
      : plan_(plan),
        stage_(stage),
        has_samples_(has_samples),
        next_(plan.steps.size()),
        depends_on_(plan.steps.size()),
        after_(plan.steps.size()) {}

  std::vector<PipelineInbox> run() {
    for (bool moves = true; moves;) {
      moves = false;
      for (size_t stage = 0; stage < next_.size(); ++stage)
        while (next_[stage] < plan_.steps[stage].size() && takes(stage)) {
          ++next_[stage];
          moves = true;
        }
    }
    std::vector<PipelineInbox> inboxes;
    for (size_t from = 0; from < after_.size(); ++from)
      if (!after_[from].empty())
        inboxes.push_back({static_cast<int>(from), std::move(after_[from])});
    return inboxes;
  }

 private:
  // Takes the next step of a stage. Returns false if its message has not been sent.
  bool takes(size_t stage) {
    const PipelineStep& step = plan_.steps[stage][next_[stage]];
    if (!has_samples_[static_cast<size_t>(step.microbatch)]) return true;
    int& depends_on = depends_on_[stage];
    if (const auto message = plan_.needs(step)) {
      const auto sent = sent_.find(plan_.tag_of(*message));
      if (sent == sent_.end()) return false;
      depends_on = std::max(depends_on, sent->second);
    }
    if (const auto message = plan_.sends(step)) {
      if (static_cast<int>(stage) == stage_) depends_on = ++own_messages_;
      sent_.emplace(plan_.tag_of(*message), depends_on);
      if (message->to == stage_) after_[stage].push_back(depends_on);
    }
    return true;
  }

  const PipelinePlan& plan_;
  const int stage_;
  const std::vector<bool>& has_samples_;
  std::vector<size_t> next_;             // [stage]: its next step.
  std::vector<int> depends_on_;          // [stage]: its steps so far need so many of our messages.
  std::map<int, int> sent_;              // [tag]: the same for the message.
  int own_messages_ = 0;                 // Those that our stage has sent.
  std::vector<std::vector<int>> after_;  // [stage]: see PipelineInbox.
};

}  // namespace

std::vector<PipelineInbox> inboxes_of(const PipelinePlan& plan, int stage,
                                      const std::vector<bool>& has_samples) {
  return InboxesOnPaper(plan, stage, has_samples).run();
}

}  // namespace trireme::plan
