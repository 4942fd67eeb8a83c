// Guards of a training: what happens to a step whose loss or gradients are not finite, or far above
// what they were. Pure; no torch.
#pragma once
#include <trireme/base/error.h>
#include <trireme/base/json.h>
#include <trireme/plan/data_plan.h>
#include <cstdint>
#include <deque>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace trireme {

struct GuardOptions {
  // stop: the run ends with what happened. skip: the batch counts as used, nothing is updated.
  // rollback: the newest checkpoint is taken up again; the batch that trips a second time is
  // skipped. With skip and rollback the gradient norm is computed in every step.
  std::string policy = "stop";
  // Above 0: a loss or gradient norm above so many times the median of the last `window` steps
  // trips too. A median that is not positive says nothing.
  double spike = 0;
  int64_t window = 32;  // Nothing is a spike before so many steps were seen.
  int64_t check_replicas_every =
      0;  // Steps between comparisons of all replicas' parameters (replica_check.h); 0: never.
};
// Throws Error(invalid_argument) naming option, value and rule.
void check(const GuardOptions& options);

enum class GuardAction { accept, skip, rollback, stop };

struct GuardVerdict {
  GuardAction action = GuardAction::accept;
  std::string reason;  // "the loss of step 41 is 30.1, 12 times the median of the last 32 steps"
  std::string remedy;
  Error error() const { return {ErrorCode::internal, "train", reason, remedy}; }
};

// The same on every replica: all see the same steps. One thread.
class Guard {
 public:
  explicit Guard(GuardOptions options);

  // What is known of a step before and after its update, alike on all replicas.
  struct Step {
    int64_t number = 0;           // Counted from 1.
    plan::DataPosition position;  // Of its batch.
    double loss = 0;
    double gradient_norm = -1;         // Negative: not computed.
    std::vector<int> nonfinite_ranks;  // Whose loss is NaN or infinite.
    bool nonfinite_gradients = false;
    bool overflow_is_expected = false;  // Under loss scaling: the scaler takes care of it.
  };
  // Whether the update may be made: asked once loss and norm are known, before it. Changes nothing.
  bool accepts(double loss, double gradient_norm) const;
  // After the step. What was accepted becomes part of the median. Ten batches in a row that trip
  // end the run under every policy.
  GuardVerdict judge(const Step& step);

  // Otherwise gradients that are not finite would be found only by the next loss, with the
  // parameters spoilt.
  bool needs_norm() const { return options_.spike > 0 || options_.policy != "stop"; }
  // Replicas were found to differ. True if all may go back to the newest checkpoint: policy
  // rollback allows that three times.
  bool may_go_back_as_replicas_differ();

  // All that later judgements depend on: the values behind the medians, the batches that were gone
  // back from, and how often something tripped. For checkpoints, and for processes that join, which
  // must judge as the others do. Broken or missing state is none.
  Json state() const;
  void load(const Json& state);
  // After all have gone back to a checkpoint that holds `state`: the values behind the medians are
  // those of then. That a batch tripped is not forgotten, or it would be gone back from for ever.
  void go_back(const Json& state);

 private:
  std::string what_is_wrong(const Step& step) const;

  GuardOptions options_;
  std::deque<double> losses_, norms_;
  int64_t tripped_in_a_row_ = 0, times_differed_ = 0;
  std::set<std::pair<int64_t, int64_t>> rolled_back_from_;  // (epoch, consumed)
};

}  // namespace trireme
