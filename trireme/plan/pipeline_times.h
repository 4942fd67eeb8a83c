// Predicts how long each step of a pipeline plan takes and what it holds in memory: the times of
// all steps, the bubble, and the peak of activations.
#pragma once
#include <trireme/plan/pipeline_plan.h>
#include <optional>
#include <vector>

namespace trireme::plan {

// The costs of a part for one micro-batch. A list has one value for each part, or one for all. The
// unit of times is the caller's, such as seconds.
struct PipelineCosts {
  std::vector<double> forward = {1};
  std::vector<double> input_gradient = {1};
  std::vector<double> weight_gradient = {1};
  // B computes both gradients; each B, or I in its place, first computes the forward again if
  // activations are recomputed.
  bool recompute = false;
  // From the end of a step to the arrival of its message on another stage.
  double transfer = 0;
  // The bytes that a part holds for a micro-batch from F until B, or until W.
  std::vector<double> activation_bytes = {1};
  // The fraction of it that is still held between I and W.
  double held_after_input_gradient = 1;

  double of(const PipelineStep& step) const;
  double bytes_of(int part) const;
};

// Reads costs: words apart by white space, in any order.
//   F=1,1,2,1     forward, one number for all parts or one for each; so are I and W
//   B=2           both gradients, half of it each; instead of I and W
//   bytes=4e6     activation_bytes; also a list
//   held=0.5      held_after_input_gradient
//   transfer=0.1
//   recompute
// Throws Error(invalid_argument) naming the word.
PipelineCosts parse_pipeline_costs(std::string_view text);

struct PipelineTime {
  double start = 0, end = 0;
};

struct PipelineTimes {
  std::vector<std::vector<PipelineTime>> steps;  // [stage][place in plan.steps[stage]]
  std::vector<double> busy;                      // [stage]: the time in which it computes.
  // From the first start to the last end over all stages, and the largest such time of one stage.
  double total = 0, span = 0;
  // The fraction of `total` in which the stages wait, on average over them.
  double bubble = 0;
  // The same of `span`. This is the bubble if a stage begins the next batch without waiting for
  // the others, and the way in which arXiv 2401.10241 counts it.
  double bubble_in_span = 0;
  // [stage]: the most micro-batches whose activations it holds at a time, summed over its parts;
  // and the most bytes, in which those between I and W count by their fraction.
  std::vector<int> peak_microbatches;
  std::vector<double> peak_bytes;

  Json to_json() const;
};

// check() must accept the plan. Throws Error(invalid_argument) naming the cost if a list has
// neither one value nor one for each part, or a value is negative or not finite.
PipelineTimes simulate(const PipelinePlan& plan, const PipelineCosts& costs = {});

// The bubble that the literature gives for the schedule if all parts cost the same and messages
// take no time, as a fraction of the total (naive, gpipe, 1f1b, interleaved, zbh1) or of the span
// (zbh2, zbv): docs/pipeline.md has the formulas and their sources. None if there is no formula
// for these facts or costs, and for plans from text. `facts` are a plan's, so they are resolved.
std::optional<double> bubble_by_formula(const PipelineFacts& facts,
                                        const PipelineCosts& costs = {});

}  // namespace trireme::plan
