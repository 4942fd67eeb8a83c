// The order of the steps of one stage, for each schedule that plan_pipeline() knows.
#pragma once
#include <trireme/plan/pipeline_plan.h>

namespace trireme::plan {

using PipelineOrder = std::vector<PipelineStep>;

// One micro-batch goes through all parts and back before the next one starts.
PipelineOrder naive_order(const PipelineFacts& facts, int stage);
// All micro-batches forward, then all backward, the last one first (GPipe, arXiv 1811.06965,
// section 2.3).
PipelineOrder gpipe_order(const PipelineFacts& facts, int stage);
// A stage that is d stages before the last one runs d micro-batches ahead, then one forward and
// one backward in turn (PipeDream-Flush, arXiv 2006.09503, section 3.2).
PipelineOrder one_forward_one_backward_order(const PipelineFacts& facts, int stage);

}  // namespace trireme::plan
