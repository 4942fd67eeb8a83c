// The execution of a pipeline plan on symbols: which steps can run after which. What checks a plan
// and what predicts its times share it.
#pragma once
#include <trireme/plan/pipeline_plan.h>
#include <functional>

namespace trireme::plan {

struct PipelinePlace {
  int stage = 0, place = 0;
  bool operator==(const PipelinePlace&) const = default;
};

void for_each_step(const PipelinePlan& plan,
                   const std::function<void(const PipelineStep&, PipelinePlace)>& visit);

// The steps whose results `step` needs, on its own stage and on others: at most two.
std::vector<PipelineStep> needed_steps(const PipelinePlan& plan, const PipelineStep& step);

// Runs the stages of a plan side by side. A stage goes on while its next step has what it needs.
// Which stage goes first makes no difference to the end: a step that can run stays so until its
// stage runs it. The plan's steps must be on their stages, each once.
class PipelineRun {
 public:
  explicit PipelineRun(const PipelinePlan& plan);

  // Calls `visit` for each step as it runs, after the steps that it needs.
  void to_the_end(const std::function<void(const PipelineStep&, PipelinePlace)>& visit = {});
  bool has_ended() const;
  bool is_at_end(int stage) const;
  int place(int stage) const { return places_[static_cast<size_t>(stage)]; }
  const PipelineStep& next_step(int stage) const;
  // The first step that the next one of `stage` needs and that has not run.
  std::optional<PipelineStep> missing(int stage) const;

 private:
  size_t index_of(const PipelineStep& step) const;

  const PipelinePlan& plan_;
  std::vector<int> places_;  // [stage]: its next step.
  std::vector<bool> done_;
};

// A stage that cannot go on, because its message finds no room or because it waits for one.
struct PipelineStandstill {
  PipelinePlace place;
  PipelineMessage message;
  bool sends = false;
};
// The stages that stand still for ever where at most `buffers` messages can wait between each two
// stages, in each direction, and a send waits while there are more. Empty: the plan ends.
std::vector<PipelineStandstill> standstill_with(const PipelinePlan& plan, int buffers);

// The fewest messages that must be able to wait between each two stages, in each direction, so
// that the plan ends although a send waits while there are more. 0: the plan also works if each
// send waits until its receiver takes the message. check() must accept the plan.
int buffers_needed(const PipelinePlan& plan);

}  // namespace trireme::plan
