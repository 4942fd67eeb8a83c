// The passes of forward and backward in which a replica computes its share of a batch.
#pragma once
#include <trireme/parallel/engine.h>
#include <trireme/parallel/step_memory.h>
#include <trireme/parallel/sync_batch_norm.h>
#include <functional>
#include <optional>

namespace trireme {

class Passes {
 public:
  // `setting` must outlive the object.
  explicit Passes(const EngineSetting& setting) : setting_(setting), memory_(setting) {}

  // Gets the mean loss over `samples` samples, for its backward. After the last pass of a share
  // nothing is added to the gradients. With 0 samples the loss is undefined, or in a model with
  // batch norms over all replicas a loss whose backward only meets the other replicas.
  using Backward = std::function<void(const at::Tensor& loss, int64_t samples, bool is_last)>;
  // Computes the batch in `passes` parts, one after the other.
  void compute(const Batch& batch, int passes, const Backward& backward);
  MemoryUse memory_use() const { return memory_.use(); }

 private:
  void compute_nothing(const Batch& batch, bool is_first, const Backward& backward);
  std::optional<SyncBatchNorm> norms_together() const;

  const EngineSetting& setting_;
  StepMemory memory_;
};

}  // namespace trireme
