// A pipeline plan that a user wrote as text.
#pragma once
#include <trireme/plan/pipeline_plan.h>
#include <string_view>

namespace trireme::plan {

// Whether it is a plan as text, and not a name: those have neither spaces nor ends of lines.
inline bool is_schedule_text(std::string_view schedule) {
  return schedule.find_first_of(" ;\n") != std::string_view::npos;
}

// Reads a plan: one line for each stage, or one text in which ';' ends a line. A step is written
// as part, letter and micro-batch: "0F0 0F1 0B0 0B1". The letters are F (forward), B (backward), I
// (gradient of the input) and W (gradient of the weights). '#' begins a comment. The numbers of
// stages, micro-batches and parts follow from the text; the parts stand on the stages as in one of
// the folds (PipelineFold). The result has passed check().
// Throws Error(invalid_argument) naming line and word, and what was expected; or that of check().
PipelinePlan parse_pipeline(std::string_view text);

}  // namespace trireme::plan
