#include <trireme/plan/pipeline_plan.h>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <trireme/base/error.h>
#include <trireme/base/units.h>
#include <trireme/plan/pipeline_orders.h>
#include <algorithm>
#include <array>
#include <iterator>
#include <limits>

namespace trireme::plan {
namespace {

constexpr int kAnyChunks = std::numeric_limits<int>::max();
// A larger plan would take seconds and gigabytes to make.
constexpr int64_t kMostPipelineSteps = 4'000'000;

struct PipelineSchedule {
  std::string_view name;
  int least_chunks, most_chunks;
  PipelineFold fold;
  int steps_per_part;  // For each micro-batch.
  PipelineOrder (*order)(const PipelineFacts& facts, int stage);
};
constexpr std::array kPipelineSchedules = {
    PipelineSchedule{"naive", 1, 1, PipelineFold::loop, 2, naive_order},
    PipelineSchedule{"gpipe", 1, 1, PipelineFold::loop, 2, gpipe_order},
    PipelineSchedule{"1f1b", 1, 1, PipelineFold::loop, 2, one_forward_one_backward_order},
    PipelineSchedule{"interleaved", 2, kAnyChunks, PipelineFold::loop, 2, interleaved_order},
    PipelineSchedule{"zbh1", 1, 1, PipelineFold::loop, 3, zero_bubble_1_order},
    PipelineSchedule{"zbh2", 1, 1, PipelineFold::loop, 3, zero_bubble_2_order},
    PipelineSchedule{"zbv", 2, 2, PipelineFold::v, 3, zero_bubble_v_order},
};

[[noreturn]] void refuse_facts(const std::string& what, const std::string& remedy) {
  throw Error(ErrorCode::invalid_argument, "plan", what, remedy);
}

const PipelineSchedule& find_schedule(const std::string& name) {
  const auto found = std::ranges::find(kPipelineSchedules, name, &PipelineSchedule::name);
  if (found != kPipelineSchedules.end()) return *found;
  std::vector<std::string_view> names;
  std::ranges::transform(kPipelineSchedules, std::back_inserter(names), &PipelineSchedule::name);
  const std::string near = nearest_word(name, names.data(), names.size());
  refuse_facts(fmt::format("pipeline schedule '{}' is unknown{}", name,
                           near.empty() ? "" : fmt::format("; did you mean '{}'?", near)),
               fmt::format("one of {}", fmt::join(names, ", ")));
}

PipelineFacts resolve_facts(const PipelineFacts& given, const PipelineSchedule& schedule) {
  PipelineFacts facts = given;
  if (facts.chunks == 0) facts.chunks = schedule.least_chunks;
  facts.fold = schedule.fold;
  const std::array<std::pair<const char*, int>, 3> numbers = {
      {{"stages", facts.stages}, {"microbatches", facts.microbatches}, {"chunks", facts.chunks}}};
  for (const auto& [name, value] : numbers) {
    if (value < 1)
      refuse_facts(fmt::format("a pipeline with {} {}", value, name),
                   fmt::format("{} of at least 1", name));
  }
  if (facts.chunks > schedule.most_chunks)
    refuse_facts(
        fmt::format("schedule {} has {} on each stage, but chunks are {}", schedule.name,
                    schedule.most_chunks == 1 ? "one part of the model" : "two parts",
                    facts.chunks),
        schedule.most_chunks == 1
            ? fmt::format("chunks 1, or the schedule interleaved with chunks {}", facts.chunks)
            : "chunks 2, or the schedule interleaved");
  if (facts.chunks < schedule.least_chunks)
    refuse_facts(fmt::format("schedule {} needs at least {} chunks on each stage, but has {}",
                             schedule.name, schedule.least_chunks, facts.chunks),
                 "chunks 2, or the schedule 1f1b, which has one part on each stage");
  // Several orders take as many micro-batches as there are stages before they leave some out.
  const double steps = double{1} * schedule.steps_per_part * facts.stages * facts.chunks *
                       std::max(facts.microbatches, facts.stages);
  if (steps > static_cast<double>(kMostPipelineSteps))
    refuse_facts(fmt::format("{} stages, {} micro-batches and {} chunks are more than a pipeline "
                             "plan may have",
                             facts.stages, facts.microbatches, facts.chunks),
                 "fewer of them");
  return facts;
}

}  // namespace

char letter_of(PipelineTask task) {
  switch (task) {
    case PipelineTask::forward: return 'F';
    case PipelineTask::backward: return 'B';
    case PipelineTask::input_gradient: return 'I';
    case PipelineTask::weight_gradient: return 'W';
  }
  return '?';
}

std::string to_string(const PipelineStep& step) {
  return fmt::format("{}{}{}", step.part, letter_of(step.task), step.microbatch);
}

int PipelinePlan::stage_of(int part) const {
  if (facts.fold == PipelineFold::v && part >= facts.stages) return 2 * facts.stages - 1 - part;
  return part % facts.stages;
}

std::vector<int> PipelinePlan::parts_of(int stage) const {
  std::vector<int> found;
  for (int part = 0; part < parts(); ++part)
    if (stage_of(part) == stage) found.push_back(part);
  return found;
}

std::optional<PipelineMessage> PipelinePlan::needs(const PipelineStep& step) const {
  if (step.task == PipelineTask::weight_gradient) return std::nullopt;
  const bool is_gradient = step.task != PipelineTask::forward;
  const int source = is_gradient ? step.part + 1 : step.part - 1;
  if (source < 0 || source >= parts() || stage_of(source) == stage_of(step.part))
    return std::nullopt;
  return PipelineMessage{is_gradient, step.microbatch, step.part, stage_of(source),
                         stage_of(step.part)};
}

std::optional<PipelineMessage> PipelinePlan::sends(const PipelineStep& step) const {
  if (step.task == PipelineTask::weight_gradient) return std::nullopt;
  const bool is_gradient = step.task != PipelineTask::forward;
  const int target = is_gradient ? step.part - 1 : step.part + 1;
  if (target < 0 || target >= parts() || stage_of(target) == stage_of(step.part))
    return std::nullopt;
  return PipelineMessage{is_gradient, step.microbatch, target, stage_of(step.part),
                         stage_of(target)};
}

int PipelinePlan::tag_of(const PipelineMessage& message) const {
  return (message.microbatch * parts() + message.part) * 2 + (message.is_gradient ? 1 : 0);
}

bool PipelinePlan::splits_backward() const {
  return std::ranges::any_of(steps, [](const auto& of_stage) {
    return std::ranges::any_of(of_stage, [](const PipelineStep& step) {
      return step.task == PipelineTask::weight_gradient;
    });
  });
}

int64_t PipelinePlan::messages_sent(int stage) const {
  const auto& own = steps[static_cast<size_t>(stage)];
  return std::ranges::count_if(own,
                               [&](const PipelineStep& step) { return sends(step).has_value(); });
}

std::string PipelinePlan::to_text() const {
  std::string text;
  for (const std::vector<PipelineStep>& own : steps) {
    std::vector<std::string> words;
    std::ranges::transform(own, std::back_inserter(words),
                           [](const PipelineStep& step) { return to_string(step); });
    text += fmt::format("{}\n", fmt::join(words, " "));
  }
  return text;
}

Json PipelinePlan::to_json() const {
  Json json = {{"schedule", facts.schedule},
               {"stages", facts.stages},
               {"microbatches", facts.microbatches},
               {"chunks", facts.chunks},
               {"fold", facts.fold == PipelineFold::v ? "v" : "loop"},
               {"steps", Json::array()},
               {"messages", Json::array()}};
  for (int stage = 0; stage < facts.stages; ++stage) {
    Json words = Json::array();
    for (const PipelineStep& step : steps[static_cast<size_t>(stage)])
      words.push_back(to_string(step));
    json["steps"].push_back(std::move(words));
    json["messages"].push_back(messages_sent(stage));
  }
  return json;
}

std::vector<std::string> pipeline_schedules() {
  std::vector<std::string> names;
  for (const PipelineSchedule& schedule : kPipelineSchedules) names.emplace_back(schedule.name);
  return names;
}

PipelinePlan plan_pipeline(const PipelineFacts& facts) {
  const PipelineSchedule& schedule = find_schedule(facts.schedule);
  PipelinePlan plan{resolve_facts(facts, schedule), {}};
  for (int stage = 0; stage < plan.facts.stages; ++stage)
    plan.steps.push_back(schedule.order(plan.facts, stage));
  return plan;
}

}  // namespace trireme::plan
