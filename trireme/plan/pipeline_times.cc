#include <trireme/plan/pipeline_times.h>

#include <fmt/format.h>
#include <trireme/base/error.h>
#include <trireme/plan/pipeline_run.h>
#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

namespace trireme::plan {
namespace {

double value_of(const std::vector<double>& values, int part) {
  return values.size() == 1 ? values.front() : values[static_cast<size_t>(part)];
}

void check_costs(const PipelineCosts& costs, int parts) {
  const auto refuse = [](const std::string& what, const std::string& remedy) {
    throw Error(ErrorCode::invalid_argument, "plan", "pipeline costs: " + what, remedy);
  };
  const auto check_value = [&](const char* name, double value) {
    if (!std::isfinite(value) || value < 0)
      refuse(fmt::format("{} is {}", name, value), "a number from 0");
  };
  const std::map<const char*, const std::vector<double>*> lists = {
      {"forward", &costs.forward},
      {"input_gradient", &costs.input_gradient},
      {"weight_gradient", &costs.weight_gradient},
      {"activation_bytes", &costs.activation_bytes}};
  for (const auto& [name, values] : lists) {
    if (values->size() != 1 && values->size() != static_cast<size_t>(parts))
      refuse(fmt::format("{} has {} values for {} parts", name, values->size(), parts),
             "one value for each part, or one for all");
    for (const double value : *values) check_value(name, value);
  }
  check_value("transfer", costs.transfer);
  check_value("held_after_input_gradient", costs.held_after_input_gradient);
  if (costs.held_after_input_gradient > 1)
    refuse(fmt::format("held_after_input_gradient is {}", costs.held_after_input_gradient),
           "a fraction from 0 to 1");
}

void measure_peaks(const PipelinePlan& plan, const PipelineCosts& costs, PipelineTimes& times) {
  using enum PipelineTask;
  for (const auto& own : plan.steps) {
    int held = 0, most = 0;
    double bytes = 0, most_bytes = 0;
    for (const auto& [task, microbatch, part] : own) {
      const double all = costs.bytes_of(part), rest = all * costs.held_after_input_gradient;
      if (task == forward) ++held, bytes += all;
      if (task == input_gradient) bytes -= all - rest;
      most = std::max(most, held);
      most_bytes = std::max(most_bytes, bytes);
      if (task == backward) --held, bytes -= all;
      if (task == weight_gradient) --held, bytes -= rest;
    }
    times.peak_microbatches.push_back(most);
    times.peak_bytes.push_back(most_bytes);
  }
}

bool are_equal(const std::vector<double>& values) {
  return std::ranges::all_of(values, [&](double value) { return value == values.front(); });
}

}  // namespace

double PipelineCosts::of(const PipelineStep& step) const {
  const double of_inputs =
      value_of(input_gradient, step.part) + (recompute ? value_of(forward, step.part) : 0);
  switch (step.task) {
    case PipelineTask::forward: return value_of(forward, step.part);
    case PipelineTask::backward: return of_inputs + value_of(weight_gradient, step.part);
    case PipelineTask::input_gradient: return of_inputs;
    case PipelineTask::weight_gradient: return value_of(weight_gradient, step.part);
  }
  return 0;
}

double PipelineCosts::bytes_of(int part) const { return value_of(activation_bytes, part); }

PipelineTimes simulate(const PipelinePlan& plan, const PipelineCosts& costs) {
  check_costs(costs, plan.parts());
  PipelineTimes times;
  for (const auto& own : plan.steps) times.steps.emplace_back(own.size());
  const auto stages = plan.steps.size();
  times.busy.resize(stages);
  std::vector<double> free_from(stages, 0);
  // [micro-batch x parts + part]: the end of the forward, and of what gives the input's gradient.
  const auto parts = static_cast<size_t>(plan.parts());
  std::vector<double> forward(parts * static_cast<size_t>(plan.facts.microbatches)),
      gradient(forward.size());
  const auto end_of = [&](const PipelineStep& step) -> double& {
    return (step.task == PipelineTask::forward
                ? forward
                : gradient)[static_cast<size_t>(step.microbatch) * parts +
                            static_cast<size_t>(step.part)];
  };
  PipelineRun run(plan);
  run.to_the_end([&](const PipelineStep& step, PipelinePlace place) {
    const auto stage = static_cast<size_t>(place.stage);
    double start = free_from[stage];
    for (const PipelineStep& needed : needed_steps(plan, step)) {
      const bool is_far = plan.stage_of(needed.part) != place.stage;
      start = std::max(start, end_of(needed) + (is_far ? costs.transfer : 0));
    }
    const double end = start + costs.of(step);
    times.steps[stage][static_cast<size_t>(place.place)] = {start, end};
    times.busy[stage] += end - start;
    free_from[stage] = end;
    if (step.task != PipelineTask::weight_gradient) end_of(step) = end;
  });
  for (size_t stage = 0; stage < stages; ++stage) {
    times.total = std::max(times.total, free_from[stage]);
    times.span = std::max(times.span, free_from[stage] - times.steps[stage].front().start);
  }
  const double busy =
      std::accumulate(times.busy.begin(), times.busy.end(), 0.0) / static_cast<double>(stages);
  times.bubble = times.total > 0 ? 1 - busy / times.total : 0;
  times.bubble_in_span = times.span > 0 ? 1 - busy / times.span : 0;
  measure_peaks(plan, costs, times);
  return times;
}

Json PipelineTimes::to_json() const {
  Json json = {{"total", total},
               {"span", span},
               {"bubble", bubble},
               {"bubble_in_span", bubble_in_span},
               {"busy", busy},
               {"peak_microbatches", peak_microbatches},
               {"peak_bytes", peak_bytes},
               {"steps", Json::array()}};
  for (const auto& own : steps) {
    Json times = Json::array();
    for (const PipelineTime& time : own) times.push_back({time.start, time.end});
    json["steps"].push_back(std::move(times));
  }
  return json;
}

std::optional<double> bubble_by_formula(const PipelineFacts& facts, const PipelineCosts& costs) {
  const bool equal = are_equal(costs.forward) && are_equal(costs.input_gradient) &&
                     are_equal(costs.weight_gradient) && costs.transfer == 0;
  if (!equal) return std::nullopt;
  const double k = facts.stages, m = facts.microbatches, c = facts.chunks;
  const double f = costs.forward.front(), w = costs.weight_gradient.front();
  const double i = costs.input_gradient.front() + (costs.recompute ? f : 0);
  const auto share = [](double idle, double work) { return idle / (idle + work); };
  const std::string& name = facts.schedule;
  if (name == "naive") return 1 - 1 / k;
  if (name == "gpipe" || name == "1f1b") return share(k - 1, m);
  if (name == "interleaved" && facts.microbatches % facts.stages == 0) return share(k - 1, c * m);
  if (name == "zbh1" && m >= k && w <= f && w <= i)
    return share((k - 1) * (f + i - w), m * (f + i + w));
  if (name == "zbh2" && m >= 2 * k - 1 && f == i && i == w) return 0;
  if (name == "zbv" && m >= 2 * k - 1 && f == i && i == w) return 0;
  return std::nullopt;
}

}  // namespace trireme::plan
