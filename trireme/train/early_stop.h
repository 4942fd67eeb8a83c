// Stops a run whose evaluations no longer get better (Prechelt 1998, "Early stopping: but when?",
// section 2: criterion UP with strips of one evaluation). Pure; no torch.
#pragma once
#include <trireme/base/json.h>
#include <trireme/config/rows.h>
#include <trireme/train/measure.h>
#include <cstdint>
#include <limits>
#include <string>

namespace trireme {

struct EarlyStopOptions {
  // The evaluations in a row without an improvement after which the run stops; 0: it does not.
  int64_t patience = 0;
  // An improvement is larger than this.
  double minimum_change = 0;
  std::string measure = "loss";  // The name of a Measure.
};
config::Rows rows_of(const EarlyStopOptions*);

// The same on every rank, because all ranks get the same evaluations. One thread.
class EarlyStop {
 public:
  EarlyStop(const EarlyStopOptions& options, Measure measure)
      : options_(options), measure_(std::move(measure)) {}

  // An evaluation of a step that was taken already counts once.
  void take(const monitor::EvalRecord& found);
  bool wants_stop() const {
    return options_.patience > 0 && without_improvement_ >= options_.patience;
  }
  int64_t without_improvement() const { return without_improvement_; }
  // "loss 0.31 of step 40 is the best; 3 evaluations since were no better"
  std::string describe() const;

  // For checkpoints. Another measure begins anew.
  Json state() const;
  void load(const Json& state);

 private:
  const EarlyStopOptions options_;
  const Measure measure_;
  double best_ = std::numeric_limits<double>::quiet_NaN();  // NaN: none yet.
  int64_t best_step_ = 0, newest_step_ = -1, without_improvement_ = 0;
};

}  // namespace trireme
