// Batch norm over the samples of all replicas instead of each replica's own. It gives the
// normalisation that one device computes with the whole batch, for any number of replicas.
//
// It needs no other modules. While a SyncBatchNorm lives, every batch norm in training mode on the
// calling thread exchanges its statistics with the other replicas: BatchNorm1d, 2d, 3d, nested
// anywhere, or torch::batch_norm itself, but not instance norm. It intercepts the operation,
// because children of a C++ module have fixed types and cannot be replaced.
//
// Forward combines counts, means and sums of squared deviations (Chan, Golub, LeVeque 1979,
// "Updating formulae and a pairwise algorithm for computing sample variances", equation 2.1);
// backward adds up two sums per channel. Running statistics are equal on all replicas.
#pragma once
#include <trireme/comm/group.h>
#include <trireme/comm/own_loop.h>
#include <trireme/tensor/interception.h>
#include <memory>
#include <vector>

namespace trireme {

//   { const SyncBatchNorm together(group); loss = criterion(model->forward(data), target); }
//
// Forward and backward are then COLLECTIVE: every replica runs the same batch norms in the same
// order. A replica without samples runs its model on an empty batch [0, ...] and calls
// DataParallel::backward(output.sum(), 0) while the object lives, so that no replica waits for it.
// torch::nn itself refuses a share of exactly one value per channel (one sample of BatchNorm1d).
// Gradients of gradients throw Error(unsupported).
class SyncBatchNorm {
 public:
  // Use `group` for nothing else while the object lives or its backward runs: World::make_groups
  // makes another one.
  explicit SyncBatchNorm(std::shared_ptr<Group> group);
  // Runs on the thread that made the object. Objects nest: the innermost one's group is used.
  ~SyncBatchNorm();
  SyncBatchNorm(const SyncBatchNorm&) = delete;
  SyncBatchNorm& operator=(const SyncBatchNorm&) = delete;

  static bool active();  // Whether an object lives on this thread.
  // From now on batch norms of this thread know that the loop weighs the gradients of each rank
  // behind its backward (own_steps.h). What backward adds up over the ranks is weighed at once.
  // Null: it does not.
  static void weigh_by(const std::shared_ptr<OwnLoop>& loop);

 private:
  Interception interception_;
  std::shared_ptr<Group> group_;
  const SyncBatchNorm* previous_;
  friend struct CurrentSyncBatchNorm;
};

// Batch norm over micro-batches (Huang et al. 2019, "GPipe", section 2.2): each is normalised by
// its own statistics, and the running statistics move once for all of them, as if by one batch.
//
// While a DeferredBatchNorm lives, every batch norm in training mode on the calling thread keeps
// its statistics here. A SyncBatchNorm inside takes precedence.
class DeferredBatchNorm {
 public:
  DeferredBatchNorm();
  // Runs on the thread that made the object. Without commit() nothing has moved. Objects nest.
  ~DeferredBatchNorm();
  DeferredBatchNorm(const DeferredBatchNorm&) = delete;
  DeferredBatchNorm& operator=(const DeferredBatchNorm&) = delete;

  // Moves the running statistics of all batch norms that have run, by all that they have seen.
  void commit();

 private:
  friend struct CurrentDeferredBatchNorm;
  // The statistics of all values that a layer has seen.
  struct Seen {
    at::Tensor running_mean, running_var;
    double momentum = 0, count = 0;
    at::Tensor mean, squares;  // float64 [channels]; squares of the deviations from the mean.
  };
  Seen& of(const at::Tensor& running_mean, const at::Tensor& running_var, double momentum);

  Interception interception_;
  std::vector<Seen> seen_;
  DeferredBatchNorm* previous_;
};

}  // namespace trireme
