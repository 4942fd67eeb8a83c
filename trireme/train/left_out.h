// Samples that a source leaves out of a batch (Source::leaves_out): what all ranks must know of
// them before they compute, because a mean over the global batch weighs by the samples in it.
#pragma once
#include <trireme/comm/group.h>
#include <trireme/data/batch.h>
#include <trireme/parallel/engine.h>
#include <trireme/plan/data_plan.h>

namespace trireme {

// COLLECTIVE. Sets `batch.global_size` to the samples that all shares still have, and
// `batch.global_targets`, if it is known, to their targets that count. Each share was
// loaded by as many ranks as any other. If no share has a sample, `wants_stop` becomes true where
// any rank wants to stop: there is no step that could carry the wish.
void count_left_out(Batch& batch, int shares, bool& wants_stop, Group& group);

// Throws Error(unsupported) if the engine cannot train on batches that lack samples.
void refuse_left_out(Engine& engine);

// Ends a run whose source gives nothing: a length in steps would never be reached.
class EmptyBatches {
 public:
  // Throws Error(invalid_argument) if as many batches as an epoch has came without a sample.
  void take(const Batch& batch, const plan::DataPlan& plan);

 private:
  int64_t in_sequence_ = 0;
};

}  // namespace trireme
