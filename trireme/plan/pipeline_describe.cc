#include <fmt/format.h>
#include <fmt/ranges.h>
#include <trireme/plan/pipeline_picture.h>
#include <trireme/plan/pipeline_run.h>
#include <algorithm>
#include <cmath>
#include <limits>

namespace trireme::plan {
namespace {

constexpr int kMostBandWidth = 90;  // Characters beside the stages.
constexpr int kMostBands = 8;

// The picture as one long line for each stage, in columns of the shortest step.
struct PipelineLines {
  std::vector<std::string> stages;
  int width = 0;  // The characters of a column.
  int columns = 0;
  double unit = 1;  // The time of a column.
};

// Part, letter and micro-batch, or only the last two if each stage has one part.
std::string label_of(const PipelinePlan& plan, const PipelineStep& step) {
  const std::string whole = to_string(step);
  return plan.facts.chunks == 1 ? whole.substr(whole.find(letter_of(step.task))) : whole;
}

double shortest_step(const PipelineTimes& times) {
  double shortest = std::numeric_limits<double>::infinity();
  for (const auto& own : times.steps) {
    for (const PipelineTime& time : own)
      if (time.end > time.start) shortest = std::min(shortest, time.end - time.start);
  }
  return std::isfinite(shortest) ? shortest : 1;
}

PipelineLines draw_lines(const PipelinePlan& plan, const PipelineTimes& times) {
  PipelineLines lines;
  lines.unit = shortest_step(times);
  const double most = kMostBandWidth * kMostBands;  // Columns beyond are not shown.
  const auto column_of = [&](double time) {
    return static_cast<int>(std::min(most, std::round(time / lines.unit)));
  };
  lines.columns = column_of(times.total);
  for_each_step(plan, [&](const PipelineStep& step, PipelinePlace) {
    lines.width = std::max(lines.width, static_cast<int>(label_of(plan, step).size()) + 1);
  });
  lines.stages.resize(plan.steps.size());
  for (size_t stage = 0; stage < plan.steps.size(); ++stage) {
    std::string& line = lines.stages[stage];
    for (int column = 0; column < lines.columns; ++column)
      line += fmt::format("{:<{}}", '.', lines.width);
    for (size_t place = 0; place < plan.steps[stage].size(); ++place) {
      const auto [start, end] = times.steps[stage][place];
      const int from = column_of(start), to = column_of(end);
      if (from >= lines.columns) break;
      std::string cell = label_of(plan, plan.steps[stage][place]);
      const auto size = static_cast<size_t>(std::max(1, to - from) * lines.width);
      cell.resize(size - 1, '-');
      line.replace(static_cast<size_t>(from * lines.width), size, cell + ' ');
    }
  }
  return lines;
}

// The lines, cut into bands that fit into a terminal.
std::string in_bands(const PipelineLines& lines) {
  const int columns = std::max(5, kMostBandWidth / lines.width / 5 * 5);
  const auto digits = fmt::formatted_size("{}", lines.stages.size() - 1);
  std::string text;
  int shown = 0;
  for (int band = 0; band < kMostBands && shown < lines.columns; ++band, shown += columns) {
    if (band > 0) text += '\n';
    text += fmt::format("time  {:{}} | ", "", digits);
    const int end = std::min(lines.columns, shown + columns);
    for (int column = shown; column < end; column += 5) {
      const std::string time = fmt::format("{:g}", column * lines.unit);
      const bool fits = static_cast<int>(time.size()) < 5 * lines.width;
      text += fmt::format("{:<{}}", fits ? time : "", 5 * lines.width);
    }
    for (size_t stage = 0; stage < lines.stages.size(); ++stage)
      text += fmt::format("\nstage {:<{}} | {}", stage, digits,
                          lines.stages[stage].substr(static_cast<size_t>(shown * lines.width),
                                                     static_cast<size_t>(columns * lines.width)));
    text += '\n';
  }
  if (shown < lines.columns) text += "... (more than this picture shows)\n";
  // Lines do not end with white space.
  std::string clean;
  for (const char letter : text) {
    while (letter == '\n' && !clean.empty() && clean.back() == ' ') clean.pop_back();
    clean += letter;
  }
  return clean;
}

std::string bubble_lines(const PipelinePlan& plan, const PipelineCosts& costs,
                         const PipelineTimes& times) {
  const auto formula = bubble_by_formula(plan.facts, costs);
  const bool formula_is_of_span = plan.facts.schedule == "zbh2" || plan.facts.schedule == "zbv";
  const auto beside = [&](bool fits) {
    return formula && fits ? fmt::format(" (formula: {:.1f} %)", *formula * 100) : "";
  };
  std::string text = fmt::format("time {:g}, bubble {:.1f} %{}\n", times.total, times.bubble * 100,
                                 beside(!formula_is_of_span));
  if (times.span < times.total)
    text += fmt::format(
        "if no stage waits for the others between batches: time {:g}, bubble "
        "{:.1f} %{}\n",
        times.span, times.bubble_in_span * 100, beside(formula_is_of_span));
  return text;
}

}  // namespace

std::string describe(const PipelinePlan& plan, const PipelineCosts& costs) {
  const PipelineTimes times = simulate(plan, costs);
  const PipelineFacts& facts = plan.facts;
  std::string text =
      fmt::format("pipeline schedule {}: {} {}, {} {}, {} on each stage\n\n", facts.schedule,
                  facts.stages, facts.stages == 1 ? "stage" : "stages", facts.microbatches,
                  facts.microbatches == 1 ? "micro-batch" : "micro-batches",
                  facts.chunks == 1 ? "one part" : fmt::format("{} parts", facts.chunks));
  text += in_bands(draw_lines(plan, times));
  text += fmt::format(
      "\n{}F forward, B backward, I gradient of the input, W gradient of the "
      "weights, . waits\n",
      facts.chunks == 1 ? "" : "part, letter, micro-batch: ");
  text += bubble_lines(plan, costs, times);
  const int buffers = buffers_needed(plan);
  text += buffers == 0 ? "sends may wait for their receivers\n"
                       : fmt::format(
                             "sends must not wait for their receivers, or only when more "
                             "than {} of a pair's messages wait\n",
                             buffers);
  const bool has_bytes = costs.activation_bytes != PipelineCosts().activation_bytes;
  text += fmt::format(
      "\nstage  parts      busy     messages sent  activations at most, in "
      "micro-batches of a part{}\n",
      has_bytes ? ", and in bytes" : "");
  for (size_t stage = 0; stage < plan.steps.size(); ++stage) {
    const int number = static_cast<int>(stage);
    text += fmt::format("{:<5}  {:<9}  {:>5.1f} %  {:<13}  {}{}\n", stage,
                        fmt::format("{}", fmt::join(plan.parts_of(number), " ")),
                        times.total > 0 ? times.busy[stage] / times.total * 100 : 0,
                        plan.messages_sent(number), times.peak_microbatches[stage],
                        has_bytes ? fmt::format(", {:g}", times.peak_bytes[stage]) : "");
  }
  return text;
}

std::string PipelinePlan::describe() const { return plan::describe(*this, {}); }

}  // namespace trireme::plan
