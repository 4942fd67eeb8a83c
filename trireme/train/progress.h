// The progress of a run: what counts as done, equal on every replica. Pure; no torch.
#pragma once
#include <trireme/plan/data_plan.h>
#include <trireme/train/ledger.h>
#include <cstdint>
#include <vector>

namespace trireme {

struct Progress {
  int64_t step = 0;  // Committed steps.
  // Batches whose gradients overflowed or that a guard skipped: their data was used, but nothing
  // was updated.
  int64_t skipped_steps = 0;
  plan::DataPosition position;  // The position of the next batch.
  // All have agreed to stop. Checkpoints do not hold it, because a resumed run continues.
  bool stopping = false;
  std::vector<double> loss_history;
  Ledger ledger;
  Json guard;            // The guard's state.
  Json resize;           // The state of Resize.
  Json early_stop = {};  // The state of EarlyStop.

  // Counts a batch as used. Without an update it is no step.
  void count(plan::DataPosition next, bool updated, double loss);
  // The epoch of the newest batch; 0 before the first.
  int64_t last_epoch() const;
  // The mean loss of the last `steps` steps, or of all if there are fewer; 0 without a step.
  double mean_loss(int64_t steps) const;
};

// The length of a run. It counts steps or data, because a skipped step uses data and has no
// number.
struct RunLength {
  int64_t steps = -1;  // The number of steps asked for; negative: `epochs` decides.
  int64_t epochs = 0;
  // Counted with the batch size that the run was given.
  int64_t batches_per_epoch = 0;

  int64_t total_steps() const { return steps >= 0 ? steps : epochs * batches_per_epoch; }
  bool is_done(const Progress& progress) const;
  // The progress is further than the run would ever come.
  bool is_exceeded(const Progress& progress) const;
};

}  // namespace trireme
