#include <ATen/core/Tensor.h>

#include <trireme/parallel/passes.h>
#include <trireme/plan/data_plan.h>
#include <trireme/tensor/autocast.h>

namespace trireme {

void Passes::compute(const Batch& batch, int passes, const Backward& backward) {
  for (int number = 0; number < passes; ++number) {
    const auto [from, to] = plan::DataPlan::share(batch.size(), number, passes);
    if (from == to) {
      compute_nothing(batch, number == 0, backward);
      continue;
    }
    setting_.enter(Phase::forward);
    const bool whole = to - from == batch.size();
    std::optional<Batch> part;
    const Batch& pass = whole ? batch : part.emplace(batch.part(from, to - from));
    at::Tensor loss;
    {
      const Autocast mixed(setting_.autocast);
      if (number == 0) memory_.begin_step(pass);
      const auto together = norms_together();
      loss = memory_.loss_of(pass);
    }
    setting_.enter(Phase::backward);
    backward(loss, to - from, number + 1 == passes);
  }
}

std::optional<SyncBatchNorm> Passes::norms_together() const {
  if (!setting_.norm_group) return std::nullopt;
  return std::optional<SyncBatchNorm>(std::in_place, setting_.norm_group);
}

// Computes nothing on a replica without samples, unless the batch norms of other replicas wait
// for it.
void Passes::compute_nothing(const Batch& batch, bool is_first, const Backward& backward) {
  if (!setting_.norm_group) return backward({}, 0, /*is_last=*/false);
  const Autocast mixed(setting_.autocast);
  const Batch nothing = batch.part(0, 0);
  if (is_first) memory_.begin_step(nothing);
  const auto together = norms_together();
  backward(memory_.output_of(nothing).sum(), 0, /*is_last=*/false);
}

}  // namespace trireme
