// What an engine of a loop as it stands looks for on its own rank: gradients that are NaN, writes
// into parameters past the optimizer, and tensors that are trained without an engine.
#pragma once
#include <trireme/parallel/own_steps.h>
#include <trireme/parallel/parameter_changes.h>
#include <trireme/parallel/trained_apart.h>
#include <trireme/parallel/updates_past_engine.h>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

namespace trireme {

// The thread of the loop uses it, except look_at().
class OwnChecks {
 public:
  // `parameters` outlive the object.
  OwnChecks(const std::vector<NamedTensor>& parameters, const OwnStepsOptions& options);

  // Runs in backward, when the gradient of a parameter has been accumulated.
  void look_at(int parameter);
  bool wants_finite() const { return wants_finite_; }
  bool saw_all_finite() const { return not_finite_ < 0; }
  // Before the gradients of all ranks are put together.
  ParameterChange find(int64_t step);

  // Before a step. No step has had a gradient, nor has this one. (A loop may leave out the update
  // of a bad batch by zero_grad().)
  bool has_never_had_gradients();

  // How often parameters were written since adopt_writes(), but for the optimizer's own steps:
  // the same on all ranks unless one of them has written its own. Never 0.
  uint64_t writes() const;
  void adopt_writes();
  // A hash of one value of each parameter at the last find(): the same on all ranks as long as
  // these are.
  uint64_t sample() const { return past_engine_.sample(); }
  // Runs the optimizer's own step.
  void update(const std::function<void()>& own);
  void end_step();        // Another step begins,
  void end_evaluation();  // or another evaluation of its closure.

 private:
  uint64_t count_versions() const;
  uint64_t mix_of_places() const;
  void count_moves();

  bool looks_at_all() const { return steps_ % kStepsBetweenWholeLooks == 0; }
  bool is_finite_parameter(const at::Tensor& tensor) const;
  ParameterChange find_bad_parameter() const;

  static constexpr int64_t kStepsBetweenWholeLooks = 64;
  const std::vector<NamedTensor>& parameters_;
  const bool wants_finite_;
  std::vector<bool> were_finite_;  // By parameter, when the object was made.
  bool has_had_gradients_ = false;
  int64_t steps_ = 1;    // The number of the step under way.
  int not_finite_ = -1;  // The first parameter whose gradient is not.
  uint64_t versions_ = 0, places_ = 0, moves_ = 0;
  UpdatesPastEngine past_engine_;        // For the loop that never calls step().
  std::shared_ptr<TrainedApart> apart_;  // Null if the loop may train other tensors.
};

}  // namespace trireme
