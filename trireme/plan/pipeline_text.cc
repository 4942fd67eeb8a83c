#include <trireme/plan/pipeline_text.h>

#include <fmt/format.h>
#include <trireme/base/error.h>
#include <trireme/base/text.h>
#include <algorithm>
#include <charconv>

namespace trireme::plan {
namespace {

constexpr int kLargestNumber = 999'999;

[[noreturn]] void refuse_text(const std::string& what, const std::string& remedy) {
  throw Error(ErrorCode::invalid_argument, "plan", "pipeline schedule, " + what, remedy);
}

// One line of the text; `stage` counts the lines that have steps.
class LineOfSteps {
 public:
  LineOfSteps(std::string_view text, int line, int stage)
      : text_(text), line_(line), stage_(stage) {}

  std::vector<PipelineStep> read() const {
    std::vector<PipelineStep> steps;
    for (std::string_view rest = trimmed(text_); !rest.empty(); rest = trimmed(rest)) {
      const std::string_view word = rest.substr(0, rest.find_first_of(" \t\r\n"));
      steps.push_back(step_of(word, static_cast<int>(steps.size()) + 1));
      rest.remove_prefix(word.size());
    }
    return steps;
  }

 private:
  [[noreturn]] void refuse(std::string_view word, int number, const std::string& what) const {
    refuse_text(fmt::format("line {} (stage {}), word {}: '{}' {}", line_, stage_, number,
                            word.substr(0, 40), what),
                "part, letter and micro-batch, such as 0F3; the letters are F (forward), B "
                "(backward), I (gradient of the input), W (gradient of the weights)");
  }

  PipelineStep step_of(std::string_view word, int number) const {
    const size_t letter = word.find_first_not_of("0123456789");
    if (letter == 0) refuse(word, number, "does not begin with the number of a part");
    if (letter == std::string_view::npos) refuse(word, number, "has no letter");
    PipelineStep step;
    switch (word[letter]) {
      case 'F': step.task = PipelineTask::forward; break;
      case 'B': step.task = PipelineTask::backward; break;
      case 'I': step.task = PipelineTask::input_gradient; break;
      case 'W': step.task = PipelineTask::weight_gradient; break;
      default: refuse(word, number, fmt::format("has the letter '{}'", word[letter]));
    }
    const auto number_of = [&](std::string_view digits, const char* name) {
      int value = -1;
      const auto [end, error] = std::from_chars(digits.begin(), digits.end(), value);
      if (error == std::errc::result_out_of_range || value > kLargestNumber)
        refuse(word, number, fmt::format("has a {} above {}", name, kLargestNumber));
      if (error != std::errc() || end != digits.end() || value < 0)
        refuse(word, number, fmt::format("does not end with the number of a {}", name));
      return value;
    };
    step.part = number_of(word.substr(0, letter), "part");
    step.microbatch = number_of(word.substr(letter + 1), "micro-batch");
    return step;
  }

  std::string_view text_;
  int line_, stage_;
};

// The first step that does not stand on the stage that the plan's fold gives its part.
std::optional<std::pair<int, PipelineStep>> misplaced(const PipelinePlan& plan) {
  for (size_t stage = 0; stage < plan.steps.size(); ++stage) {
    for (const PipelineStep& step : plan.steps[stage])
      if (plan.stage_of(step.part) != static_cast<int>(stage))
        return std::pair(static_cast<int>(stage), step);
  }
  return std::nullopt;
}

// Takes the numbers of micro-batches and parts, and the fold, from the steps.
void resolve_text(PipelinePlan& plan) {
  PipelineFacts& facts = plan.facts;
  facts.stages = static_cast<int>(plan.steps.size());
  int parts = 0;
  facts.microbatches = 0;
  for (const auto& own : plan.steps) {
    for (const PipelineStep& step : own) {
      parts = std::max(parts, step.part + 1);
      facts.microbatches = std::max(facts.microbatches, step.microbatch + 1);
    }
  }
  if (parts % facts.stages != 0)
    refuse_text(fmt::format("it has {} parts on {} stages (lines), so not the same number on each",
                            parts, facts.stages),
                "parts 0 to n x stages - 1, and one line for each stage");
  facts.chunks = parts / facts.stages;
  const auto wrong = misplaced(plan);
  if (!wrong) return;
  facts.fold = PipelineFold::v;
  if (facts.chunks == 2 && !misplaced(plan)) return;
  facts.fold = PipelineFold::loop;
  const auto& [stage, step] = *wrong;
  refuse_text(
      fmt::format("stage {}: {} stands on the wrong line", stage, to_string(step)),
      fmt::format("part p on stage p % {}, or two parts on each stage in a V", facts.stages));
}

}  // namespace

PipelinePlan parse_pipeline(std::string_view text) {
  PipelinePlan plan;
  plan.facts.schedule = "text";
  int line = 0;
  while (!text.empty()) {
    ++line;
    const size_t end = text.find_first_of("\n;");
    std::string_view own = text.substr(0, end);
    // A comment ends with its line, not with a semicolon in it.
    if (const size_t comment = own.find('#'); comment != std::string_view::npos) {
      const size_t newline = text.find('\n');
      own = own.substr(0, comment);
      text.remove_prefix(newline == std::string_view::npos ? text.size() : newline + 1);
    } else {
      text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    }
    if (trimmed(own).empty()) continue;
    plan.steps.push_back(LineOfSteps(own, line, static_cast<int>(plan.steps.size())).read());
  }
  if (plan.steps.empty())
    refuse_text("it has no steps", "one line for each stage, such as 0F0 0B0");
  resolve_text(plan);
  check(plan);
  return plan;
}

}  // namespace trireme::plan
