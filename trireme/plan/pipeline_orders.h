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
// 1F1B with several parts on each stage, over groups of K micro-batches for K stages (Megatron,
// arXiv 2104.04473, section 2.2). The paper asks for whole groups. Here the first group may be
// smaller: the order is that of whole groups, without the steps of micro-batches that do not
// exist. Leaving out all steps of a micro-batch takes nothing away that another one waits for.
PipelineOrder interleaved_order(const PipelineFacts& facts, int stage);
// 1F1B with the backward in two parts: the gradients of weights wait, so that those of inputs
// reach the stages before sooner. The stages hold as many micro-batches as the first one does in
// 1F1B (ZB-H1, arXiv 2401.10241, section 2.1).
PipelineOrder zero_bubble_1_order(const PipelineFacts& facts, int stage);
// The same, with so many forwards at the start that no stage waits, and for that nearly twice the
// activations (ZB-H2, arXiv 2401.10241, section 2.2).
PipelineOrder zero_bubble_2_order(const PipelineFacts& facts, int stage);
// Two parts on each stage in a V, so that the stage that begins a batch also ends it. No stage
// waits, with the activations of 1F1B (ZB-V, arXiv 2401.10241, section 6).
PipelineOrder zero_bubble_v_order(const PipelineFacts& facts, int stage);

}  // namespace trireme::plan
