#include <trireme/plan/pipeline_run.h>

#include <algorithm>
#include <map>
#include <set>

namespace trireme::plan {
namespace {

// Whether stages that send at most `buffers` messages ahead to each other come to the end.
bool ends_with_buffers(const PipelinePlan& plan, int buffers) {
  const auto stages = static_cast<size_t>(plan.facts.stages);
  std::vector<size_t> places(stages, 0);
  // The tags of messages that were sent and not yet taken, for each pair of stages.
  std::map<std::pair<int, int>, std::set<int>> waiting;
  // The pair to which a stage sends while there is no room, after its step.
  std::vector<std::optional<std::pair<int, int>>> blocked(stages);
  const auto go_on = [&](size_t stage) {
    if (auto& channel = blocked[stage]) {
      if (waiting[*channel].size() > static_cast<size_t>(buffers)) return false;
      channel.reset();
      ++places[stage];
      return true;
    }
    if (places[stage] == plan.steps[stage].size()) return false;
    const PipelineStep& step = plan.steps[stage][places[stage]];
    if (const auto message = plan.needs(step)) {
      if (waiting[{message->from, message->to}].erase(plan.tag_of(*message)) == 0) return false;
    }
    if (const auto message = plan.sends(step)) {
      const std::pair<int, int> channel = {message->from, message->to};
      waiting[channel].insert(plan.tag_of(*message));
      blocked[stage] = channel;
    } else {
      ++places[stage];
    }
    return true;
  };
  for (bool moved = true; moved;) {
    moved = false;
    for (size_t stage = 0; stage < stages; ++stage)
      while (go_on(stage)) moved = true;
  }
  for (size_t stage = 0; stage < stages; ++stage)
    if (places[stage] < plan.steps[stage].size()) return false;
  return true;
}

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

int buffers_needed(const PipelinePlan& plan) {
  int buffers = 0;
  while (!ends_with_buffers(plan, buffers)) ++buffers;
  return buffers;
}

}  // namespace trireme::plan
