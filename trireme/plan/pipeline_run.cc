#include <trireme/plan/pipeline_run.h>

#include <algorithm>
#include <map>
#include <set>

namespace trireme::plan {
namespace {

// The stages of a plan side by side, with room for some messages between each two of them.
class BufferedRun {
 public:
  BufferedRun(const PipelinePlan& plan, int buffers)
      : plan_(plan), room_(static_cast<size_t>(buffers)), stages_(plan.steps.size()) {}

  void to_the_end() {
    for (bool moved = true; moved;) {
      moved = false;
      for (size_t stage = 0; stage < stages_.size(); ++stage)
        while (go_on(stage)) moved = true;
    }
  }

  std::vector<PipelineStandstill> standing() const {
    std::vector<PipelineStandstill> all;
    for (size_t stage = 0; stage < stages_.size(); ++stage) {
      const Stage& own = stages_[stage];
      if (own.place == plan_.steps[stage].size()) continue;
      const PipelineStep& step = plan_.steps[stage][own.place];
      const auto message = own.is_sending ? plan_.sends(step) : plan_.needs(step);
      all.push_back({{static_cast<int>(stage), static_cast<int>(own.place)},
                     message.value_or(PipelineMessage()),
                     own.is_sending});
    }
    return all;
  }

 private:
  struct Stage {
    size_t place = 0;
    bool is_sending = false;  // The step at `place` is done, but its message has no room.
  };
  // The tags of messages that were sent and not yet taken.
  std::set<int>& channel(const PipelineMessage& message) {
    return waiting_[{message.from, message.to}];
  }

  bool go_on(size_t stage) {
    Stage& own = stages_[stage];
    if (own.place == plan_.steps[stage].size()) return false;
    const PipelineStep& step = plan_.steps[stage][own.place];
    const auto sent = plan_.sends(step);
    if (!own.is_sending) {
      if (const auto needed = plan_.needs(step))
        if (channel(*needed).erase(plan_.tag_of(*needed)) == 0) return false;
      if (sent) {
        channel(*sent).insert(plan_.tag_of(*sent));
        own.is_sending = true;
        return true;
      }
    } else if (channel(*sent).size() > room_) {
      return false;
    }
    own.is_sending = false;
    ++own.place;
    return true;
  }

  const PipelinePlan& plan_;
  const size_t room_;
  std::vector<Stage> stages_;
  std::map<std::pair<int, int>, std::set<int>> waiting_;
};

}  // namespace

void for_each_step(const PipelinePlan& plan,
                   const std::function<void(const PipelineStep&, PipelinePlace)>& visit) {
  for (size_t stage = 0; stage < plan.steps.size(); ++stage)
    for (size_t place = 0; place < plan.steps[stage].size(); ++place)
      visit(plan.steps[stage][place], {static_cast<int>(stage), static_cast<int>(place)});
}

std::vector<PipelineStep> needed_steps(const PipelinePlan& plan, const PipelineStep& step) {
  using enum PipelineTask;
  const auto [task, microbatch, part] = step;
  std::vector<PipelineStep> needed;
  if (task == weight_gradient) {
    needed.push_back({input_gradient, microbatch, part});
  } else if (task == forward) {
    if (part > 0) needed.push_back({forward, microbatch, part - 1});
  } else {
    needed.push_back({forward, microbatch, part});
    // The next part may compute its two gradients in one step or in two.
    if (part + 1 < plan.parts()) needed.push_back({input_gradient, microbatch, part + 1});
  }
  return needed;
}

PipelineRun::PipelineRun(const PipelinePlan& plan)
    : plan_(plan),
      places_(plan.steps.size(), 0),
      done_(static_cast<size_t>(plan.parts()) * static_cast<size_t>(plan.facts.microbatches) * 3) {
}

size_t PipelineRun::index_of(const PipelineStep& step) const {
  // B gives what I gives.
  const size_t kind = step.task == PipelineTask::forward           ? 0
                      : step.task == PipelineTask::weight_gradient ? 2
                                                                   : 1;
  const auto place = static_cast<size_t>(step.microbatch) * static_cast<size_t>(plan_.parts()) +
                     static_cast<size_t>(step.part);
  return place * 3 + kind;
}

void PipelineRun::to_the_end(
    const std::function<void(const PipelineStep&, PipelinePlace)>& visit) {
  for (bool moved = true; moved;) {
    moved = false;
    for (int stage = 0; stage < plan_.facts.stages; ++stage) {
      while (!is_at_end(stage) && !missing(stage)) {
        const PipelineStep& step = next_step(stage);
        if (visit) visit(step, {stage, place(stage)});
        done_[index_of(step)] = true;
        ++places_[static_cast<size_t>(stage)];
        moved = true;
      }
    }
  }
}

bool PipelineRun::is_at_end(int stage) const {
  return place(stage) == static_cast<int>(plan_.steps[static_cast<size_t>(stage)].size());
}

bool PipelineRun::has_ended() const {
  for (int stage = 0; stage < plan_.facts.stages; ++stage)
    if (!is_at_end(stage)) return false;
  return true;
}

const PipelineStep& PipelineRun::next_step(int stage) const {
  return plan_.steps[static_cast<size_t>(stage)][static_cast<size_t>(place(stage))];
}

std::optional<PipelineStep> PipelineRun::missing(int stage) const {
  for (const PipelineStep& step : needed_steps(plan_, next_step(stage)))
    if (!done_[index_of(step)]) return step;
  return std::nullopt;
}

std::vector<PipelineStandstill> standstill_with(const PipelinePlan& plan, int buffers) {
  BufferedRun run(plan, buffers);
  run.to_the_end();
  return run.standing();
}

int buffers_needed(const PipelinePlan& plan) {
  int buffers = 0;
  while (!standstill_with(plan, buffers).empty()) ++buffers;
  return buffers;
}

}  // namespace trireme::plan
