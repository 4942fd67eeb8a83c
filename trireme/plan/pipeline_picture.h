// Pictures of a pipeline plan as in the papers: stages down, time across. Equal plans and costs
// give equal texts.
#pragma once
#include <trireme/plan/pipeline_times.h>
#include <string>

namespace trireme::plan {

// For a terminal. Below the picture are the bubble, and for each stage the peak of its activations
// and its messages. check() must accept the plan. Throws as simulate() does.
std::string describe(const PipelinePlan& plan, const PipelineCosts& costs);

// An SVG file: a cell for each step, with its micro-batch in it, and a legend and a caption with
// the same figures. Colours tell the tasks apart, also by their lightness, and shades the parts of
// a stage. Each cell has a title for readers who cannot see it. Throws as simulate() does, and
// Error(unsupported) for a plan of more than 20,000 steps.
std::string draw_svg(const PipelinePlan& plan, const PipelineCosts& costs = {});

}  // namespace trireme::plan
