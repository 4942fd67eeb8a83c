// Guards decide about a step whose loss or gradients are not finite, or far above the usual
// values. Pure; no torch.
#pragma once
#include <trireme/base/error.h>
#include <trireme/base/json.h>
#include <trireme/config/rows.h>
#include <trireme/plan/data_plan.h>
#include <cstdint>
#include <deque>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace trireme {

struct GuardOptions {
  // stop: the run ends with a message. skip: the batch counts as used and nothing is updated.
  // rollback: all load the newest checkpoint again, and a batch that trips a second time is
  // skipped. With skip and rollback the gradient norm is computed in every step.
  std::string policy = "stop";
  // If above 0, a loss or gradient norm above this multiple of the median of the last `window`
  // steps trips the guard too. A median that is not positive is ignored.
  double spike = 0;
  // The number of steps that must be known before a value counts as a spike.
  int64_t window = 32;
  // The number of steps between comparisons of all replicas' parameters
  // (replica_check.h); 0: never.
  int64_t check_replicas_every = 0;
};
config::Rows rows_of(const GuardOptions*);
// Throws Error(invalid_argument) that names option, value and rule.
void check(const GuardOptions& options);

enum class GuardAction { accept, skip, rollback, stop };

struct GuardVerdict {
  GuardAction action = GuardAction::accept;
  std::string reason;  // "the loss of step 41 is 30.1, 12 times the median of the last 32 steps"
  std::string remedy;
  Error error() const { return {ErrorCode::internal, "train", reason, remedy}; }
};

// All replicas see the same steps and therefore decide alike. One thread.
class Guard {
 public:
  explicit Guard(GuardOptions options);

  // The facts of a step before and after its update, equal on all replicas.
  struct Step {
    int64_t number = 0;           // Steps count from 1.
    plan::DataPosition position;  // The position of its batch.
    double loss = 0;
    double gradient_norm = -1;         // Negative: not computed.
    std::vector<int> nonfinite_ranks;  // Ranks whose loss is NaN or infinite.
    bool nonfinite_gradients = false;
    bool overflow_is_expected = false;  // True under loss scaling: the scaler handles overflows.
  };
  // Returns true if the update may be made. Called before the update, once loss and norm are
  // known. Changes nothing.
  bool accepts(double loss, double gradient_norm) const;
  // Judges the step afterwards. Accepted values become part of the median. Ten batches in a row
  // that trip end the run under every policy.
  GuardVerdict judge(const Step& step);

  // True if the norm is needed before the update. Without the norm, gradients that are not finite
  // are only noticed at the next loss, when the parameters are already spoilt.
  bool needs_norm() const { return options_.spike > 0 || options_.policy != "stop"; }
  // Called when replicas differ. Returns true if all may return to the newest checkpoint; policy
  // rollback allows that three times.
  bool may_go_back_as_replicas_differ();

  // Everything that later decisions depend on: the values behind the medians, the batches that
  // were rolled back, and how often something tripped. It is stored in checkpoints and given to
  // processes that join, because these must decide as the others do. Missing or broken state
  // counts as empty.
  Json state() const;
  void load(const Json& state);
  // Called after all have returned to a checkpoint that holds `state`. Restores the values behind
  // the medians from it. Batches that tripped stay known; otherwise the run would roll back from
  // them for ever.
  void go_back(const Json& state);

 private:
  std::string what_is_wrong(const Step& step) const;

  GuardOptions options_;
  std::deque<double> losses_, norms_;
  int64_t tripped_in_a_row_ = 0, times_differed_ = 0;
  std::set<std::pair<int64_t, int64_t>> rolled_back_from_;  // (epoch, consumed)
};

}  // namespace trireme
