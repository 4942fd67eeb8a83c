#include <ATen/core/Tensor.h>

#include <trireme/parallel/passes.h>
#include <trireme/plan/data_plan.h>
#include <trireme/tensor/autocast.h>

namespace trireme {

void Passes::compute(const Batch& batch, int passes, const Backward& backward) const {
  for (int number = 0; number < passes; ++number) {
    const auto [from, to] = plan::DataPlan::share(batch.size(), number, passes);
    if (from == to) {
      compute_nothing(batch, backward);
      continue;
    }
    setting_.enter(Phase::forward);
    const bool whole = to - from == batch.size();
    std::optional<Batch> part;
    const Batch& pass = whole ? batch : part.emplace(batch.part(from, to - from));
    at::Tensor loss;
    {
      const Autocast mixed(setting_.autocast);
      const auto together = norms_together();
      loss = setting_.loss(output_of(setting_.model, pass), pass);
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
void Passes::compute_nothing(const Batch& batch, const Backward& backward) const {
  const auto together = norms_together();
  if (!together) return backward({}, 0, /*is_last=*/false);
  const Autocast mixed(setting_.autocast);
  backward(output_of(setting_.model, batch.part(0, 0)).sum(), 0, /*is_last=*/false);
}

}  // namespace trireme
