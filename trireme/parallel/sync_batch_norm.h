// Batch norm over the samples of all replicas instead of each replica's own: the normalisation that
// one device with the whole batch computes, whatever the number of replicas.
//
// It needs no other modules: while a SyncBatchNorm lives, every batch norm in training mode on the
// calling thread (BatchNorm1d, 2d, 3d, nested anywhere, or torch::batch_norm itself; not instance
// norm) exchanges its statistics with the other replicas. It intercepts the operation, as children
// of a C++ module have fixed types and cannot be replaced.
//
// Forward combines counts, means and sums of squared deviations (Chan, Golub, LeVeque 1979,
// "Updating formulae and a pairwise algorithm for computing sample variances", equation 2.1);
// backward adds up two sums per channel. Running statistics are equal on all replicas.
#pragma once
#include <trireme/comm/group.h>
#include <trireme/tensor/interception.h>
#include <memory>

namespace trireme {

//   { const SyncBatchNorm together(group); loss = criterion(model->forward(data), target); }
//
// Forward and backward are COLLECTIVE then: every replica runs the same batch norms in the same
// order. A replica without samples runs its model on an empty batch [0, ...] and calls
// DataParallel::backward(output.sum(), 0) while the object lives, so that nobody waits for it.
// torch::nn itself refuses a share of exactly one value per channel (one sample of BatchNorm1d).
// Gradients of gradients: Error(unsupported).
class SyncBatchNorm {
 public:
  // `group` is used for nothing else while the object lives or its backward is under way:
  // World::make_groups gives another.
  explicit SyncBatchNorm(std::shared_ptr<Group> group);
  ~SyncBatchNorm();  // On the thread that made it. Objects nest: the innermost group counts.
  SyncBatchNorm(const SyncBatchNorm&) = delete;
  SyncBatchNorm& operator=(const SyncBatchNorm&) = delete;

  static bool active();  // One lives on this thread.

 private:
  Interception interception_;
  std::shared_ptr<Group> group_;
  const SyncBatchNorm* previous_;
  friend struct CurrentSyncBatchNorm;
};

}  // namespace trireme
