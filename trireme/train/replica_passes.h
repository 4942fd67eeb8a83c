// The passes of forward and backward in which a replica computes its share of a step.
#pragma once
#include <trireme/data/loader.h>
#include <trireme/launch/phase.h>
#include <trireme/parallel/data_parallel.h>
#include <trireme/parallel/sync_batch_norm.h>
#include <trireme/tensor/replica_random.h>
#include <trireme/train/trainer.h>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

namespace trireme {

// Used by the thread of its replica. It lives as long as a run.
class ReplicaPasses {
 public:
  // `phase` is called when forward or backward begins. All arguments must outlive the object.
  ReplicaPasses(const TrainerOptions& options, const Job& job, const Model& model,
                ReplicaRandom& random, std::function<void(Phase)> phase);

  // Takes a generation's engine, which must live until unbind(), and the group of batch norms over
  // all replicas (may be null).
  void bind(DataParallel& replica, std::shared_ptr<Group> norm_group);
  void unbind();

  // Leaves the gradients of this replica's share of `batch` in the engine, ready for its step().
  // The share is computed in `passes` parts, one after the other, or with virtual shards each
  // shard in so many. `step` seeds the random numbers of each shard. Throws
  // Error(invalid_argument) if training changes a buffer although there are virtual shards.
  void compute(const Batch& batch, int64_t step, int passes);

 private:
  void compute_whole(const Batch& batch, int passes);
  void compute_nothing(const Batch& batch);
  void refuse_moved_buffers(const std::vector<at::Tensor>& before) const;
  std::optional<SyncBatchNorm> norms_together() const;

  const TrainerOptions& options_;
  const Job& job_;
  const Model& model_;
  ReplicaRandom& random_;
  std::function<void(Phase)> phase_;
  bool buffers_judged_ = false;  // Used with virtual shards.
  // The members below belong to a generation.
  DataParallel* replica_ = nullptr;
  std::shared_ptr<Group> norm_group_;
};

std::vector<at::Tensor> copies_of(const std::vector<NamedTensor>& tensors);

}  // namespace trireme
