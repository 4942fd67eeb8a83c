#include <fmt/format.h>
#include <trireme/base/error.h>
#include <trireme/plan/pipeline_plan.h>
#include <trireme/plan/pipeline_run.h>
#include <algorithm>
#include <map>

namespace trireme::plan {
namespace {

// The steps of all stages by their places. Cells in `marked` stand between > and <; behind the
// last step of a stage such a cell has a question mark, for a step that is missing. Of a wide plan
// only the columns around the first marked cell are shown.
std::string grid_of(const PipelinePlan& plan, const std::vector<PipelinePlace>& marked) {
  constexpr int kAround = 6;
  size_t width = 2, longest = 0;
  for (const auto& own : plan.steps) {
    longest = std::max(longest, own.size());
    for (const PipelineStep& step : own) width = std::max(width, to_string(step).size());
  }
  for (const PipelinePlace& cell : marked)
    longest = std::max(longest, static_cast<size_t>(cell.place) + 1);
  const int middle = marked.empty() ? 0 : marked.front().place;
  const int from = std::max(0, middle - kAround);
  const int to = std::min(static_cast<int>(longest), middle + kAround + 1);
  std::string text = "place   ";
  for (int place = from; place < to; ++place) text += fmt::format(" {:<{}} ", place, width);
  while (text.back() == ' ') text.pop_back();
  for (int stage = 0; stage < static_cast<int>(plan.steps.size()); ++stage) {
    text += fmt::format("\nstage {:<2}", stage);
    const auto& own = plan.steps[static_cast<size_t>(stage)];
    for (int place = from; place < to; ++place) {
      const bool mark = std::ranges::find(marked, PipelinePlace{stage, place}) != marked.end();
      const bool is_there = place < static_cast<int>(own.size());
      if (!is_there && !mark) break;
      text += fmt::format("{}{:^{}}{}", mark ? '>' : ' ',
                          is_there ? to_string(own[static_cast<size_t>(place)]) : "?", width,
                          mark ? '<' : ' ');
    }
    if (static_cast<int>(own.size()) > to) text += " ...";
    while (text.back() == ' ') text.pop_back();
  }
  return text;
}

[[noreturn]] void reject_pipeline(const PipelinePlan& plan, const std::string& what,
                                  const std::vector<PipelinePlace>& marked,
                                  bool is_of_the_caller = false) {
  is_of_the_caller = is_of_the_caller || plan.facts.schedule == "text";
  throw Error(
      is_of_the_caller ? ErrorCode::invalid_argument : ErrorCode::internal, "plan",
      fmt::format("pipeline plan '{}': {}\n{}", plan.facts.schedule, what, grid_of(plan, marked)));
}

void check_facts(const PipelinePlan& plan) {
  const PipelineFacts& facts = plan.facts;
  const auto reject = [&](const std::string& what) { reject_pipeline(plan, what, {}); };
  if (facts.stages < 1 || facts.microbatches < 1 || facts.chunks < 1)
    reject(fmt::format("it has {} stages, {} micro-batches and {} chunks", facts.stages,
                       facts.microbatches, facts.chunks));
  if (facts.fold == PipelineFold::v && facts.chunks != 2)
    reject(fmt::format("a V needs 2 parts on each stage, but there are {}", facts.chunks));
  if (plan.steps.size() != static_cast<size_t>(facts.stages))
    reject(fmt::format("it has steps for {} of {} stages", plan.steps.size(), facts.stages));
}

// Checks that each step is on its stage and appears once, and that none is missing.
void check_steps(const PipelinePlan& plan) {
  std::map<std::tuple<int, int, PipelineTask>, PipelinePlace> seen;
  const auto place_of = [&](PipelineTask task, int microbatch, int part) {
    const auto found = seen.find({part, microbatch, task});
    return found == seen.end() ? std::nullopt : std::optional(found->second);
  };
  for_each_step(plan, [&](const PipelineStep& step, PipelinePlace place) {
    const auto reject = [&](const std::string& what, std::vector<PipelinePlace> marked = {}) {
      marked.insert(marked.begin(), place);
      reject_pipeline(plan,
                      fmt::format("stage {}, place {}: {} {}", place.stage, place.place,
                                  to_string(step), what),
                      marked);
    };
    if (step.part < 0 || step.part >= plan.parts())
      reject(fmt::format("names part {} of {}", step.part, plan.parts()));
    if (step.microbatch < 0 || step.microbatch >= plan.facts.microbatches)
      reject(fmt::format("names micro-batch {} of {}", step.microbatch, plan.facts.microbatches));
    if (plan.stage_of(step.part) != place.stage)
      reject(fmt::format("stands on another stage than its part, which is on stage {}",
                         plan.stage_of(step.part)));
    if (const auto first = place_of(step.task, step.microbatch, step.part))
      reject(fmt::format("is there a second time; the first is at place {}", first->place),
             {*first});
    seen[{step.part, step.microbatch, step.task}] = place;
    using enum PipelineTask;
    for (const PipelineTask half : {input_gradient, weight_gradient}) {
      const auto whole = place_of(backward, step.microbatch, step.part);
      const auto part = place_of(half, step.microbatch, step.part);
      if (whole && part)
        reject(fmt::format("repeats a gradient, because B is I and W in one; the other is at "
                           "place {}",
                           *whole == place ? part->place : whole->place),
               {*whole == place ? *part : *whole});
    }
  });
  for (int part = 0; part < plan.parts(); ++part) {
    for (int m = 0; m < plan.facts.microbatches; ++m) {
      const auto has = [&](PipelineTask task) { return place_of(task, m, part).has_value(); };
      const auto require = [&](PipelineTask task, const char* rest = "") {
        if (has(task)) return;
        const int stage = plan.stage_of(part);
        const size_t end = plan.steps[static_cast<size_t>(stage)].size();
        reject_pipeline(plan,
                        fmt::format("stage {} never runs {}{}", stage,
                                    to_string(PipelineStep{task, m, part}), rest),
                        {{stage, static_cast<int>(end)}});
      };
      using enum PipelineTask;
      require(forward);
      if (has(input_gradient) || has(weight_gradient)) {
        require(input_gradient);
        require(weight_gradient);
      } else {
        require(backward, fmt::format(" (or {} and {})", to_string({input_gradient, m, part}),
                                      to_string({weight_gradient, m, part}))
                              .c_str());
      }
    }
  }
}

// The step of the plan that gives what `step` gives: B gives what I gives.
PipelineStep in_the_plan(const PipelinePlan& plan, PipelineStep step) {
  const auto& own = plan.steps[static_cast<size_t>(plan.stage_of(step.part))];
  if (std::ranges::find(own, step) == own.end()) step.task = PipelineTask::backward;
  return step;
}

// Says why no stage can go on: from a step that waits, along the steps for which they wait, until
// a stage appears again.
void reject_standstill(const PipelinePlan& plan, const PipelineRun& run) {
  int stage = 0;
  while (run.is_at_end(stage)) ++stage;
  std::vector<PipelinePlace> marked;
  std::string chain;
  const auto is_marked = [&](int s) {
    return std::ranges::find(marked, s, &PipelinePlace::stage) != marked.end();
  };
  while (!is_marked(stage)) {
    const PipelineStep& step = run.next_step(stage);
    const PipelineStep awaited = in_the_plan(plan, *run.missing(stage));
    marked.push_back({stage, run.place(stage)});
    const int other = plan.stage_of(awaited.part);
    chain += fmt::format("{}stage {}, place {}: {} waits for {}, which stage {} runs later",
                         chain.empty() ? "" : "; ", stage, run.place(stage), to_string(step),
                         to_string(awaited), other);
    stage = other;
  }
  // The steps before the circle only lead to it.
  const auto first = std::ranges::find(marked, stage, &PipelinePlace::stage);
  std::rotate(marked.begin(), first, marked.end());
  reject_pipeline(plan, "it would never end: " + chain, marked);
}

void check_buffers(const PipelinePlan& plan, int buffers) {
  if (buffers < 0)
    throw Error(ErrorCode::invalid_argument, "plan",
                fmt::format("a pipeline with {} buffers", buffers), "0 or more");
  const auto standing = standstill_with(plan, buffers);
  if (standing.empty()) return;
  std::vector<PipelinePlace> marked;
  std::string chain;
  for (const PipelineStandstill& stage : standing) {
    const auto [number, place] = stage.place;
    const PipelineStep& step = plan.steps[static_cast<size_t>(number)][static_cast<size_t>(place)];
    marked.push_back(stage.place);
    chain += fmt::format("{}stage {}, place {}: {} ", chain.empty() ? "" : "; ", number, place,
                         to_string(step));
    chain += stage.sends ? fmt::format("sends to stage {}, and finds no room", stage.message.to)
                         : fmt::format("waits for stage {}", stage.message.from);
  }
  reject_pipeline(
      plan,
      fmt::format("with {} buffer{} between two stages it would never end, and it needs {}: {}",
                  buffers, buffers == 1 ? "" : "s", buffers_needed(plan), chain),
      marked, true);
}

}  // namespace

void check(const PipelinePlan& plan, std::optional<int> buffers) {
  check_facts(plan);
  check_steps(plan);
  PipelineRun run(plan);
  run.to_the_end();
  if (!run.has_ended()) reject_standstill(plan, run);
  if (buffers) check_buffers(plan, *buffers);
}

}  // namespace trireme::plan
