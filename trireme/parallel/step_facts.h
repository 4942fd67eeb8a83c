// The facts of a step that all replicas learn besides gradients, as numbers that a sum over all
// replicas carries.
#pragma once
#include <trireme/base/error.h>
#include <trireme/parallel/module_state.h>
#include <trireme/parallel/step_outcome.h>
#include <trireme/plan/data_parallel_plan.h>
#include <vector>

namespace trireme {

// An error that every rank throws in the same step, because all have read the same facts. They can
// look for its cause together.
class ErrorOfAllRanks : public Error {
 public:
  explicit ErrorOfAllRanks(const Error& error) : Error(error) {}
  using Error::Error;
};

// The same error with the number of the step in front, unless its text names that step.
Error with_step(const Error& error, int64_t step);

// The ranks told different digests.
class OtherDigests : public ErrorOfAllRanks {
 public:
  using ErrorOfAllRanks::ErrorOfAllRanks;
};

class StepFacts {
 public:
  StepFacts(int world_size, const std::vector<NamedTensor>& parameters)
      : world_size_(world_size), names_(names_of(parameters)) {}
  int64_t size() const { return used(std::ssize(names_)); }

  // Writes this replica's part. `has_gradient` is by parameter. A float32 tensor counts
  // exactly up to 2^24.
  void write(const Contribution& mine, int rank, const std::vector<bool>& has_gradient,
             bool gradients_are_finite, const at::Tensor& values) const;

  // Records a change that `rank` found in its part, unless it found another one before.
  void report_change(const at::Tensor& values, int rank, ParameterChange found) const;
  // Records in a part, or in a sum of parts, that some gradients are not finite.
  void report_bad_gradients(const at::Tensor& values) const {
    values.select(0, kBadGradients).fill_(1);
  }

  // The change of the lowest rank that has found one, in a sum over all replicas.
  struct Reported {
    int rank = -1;  // No rank has.
    ParameterChange found;
  };
  Reported reported(const at::Tensor& values) const;

  struct Summed {
    // Loss, samples, stop, regroup, the ranks whose loss is not finite, and whether the gradients
    // of some rank are not finite.
    StepOutcome outcome;
    // Gradients are already weighted by 1 / total; otherwise they are sums.
    bool weighted = false;
    std::vector<bool> used;  // By parameter: some replica has a gradient.
  };
  // Reads the sum over all replicas. Throws ErrorOfAllRanks(invalid_argument) if some ranks knew
  // the total of samples and others did not, if a rank found a changed parameter, or if the groups
  // of the optimizer or the digests of parameters differ.
  Summed read(const at::Tensor& values) const;

 private:
  static constexpr int kLoss = 0, kSamples = 1, kOfKnownTotal = 2, kStop = 3, kRegroup = 4,
                       kBadGradients = 5, kFixed = 6;
  // Each rank whose loop is asked to end adds it to kStop, and each that wants to stop adds 1.
  static constexpr double kOfEnd = 1 << 20;
  int nonfinite(int rank) const { return kFixed + rank; }
  // The place of the rank's change. A note follows it: the changed parameter, or without a change
  // the number of writes.
  int change(int rank) const { return kFixed + world_size_ + 2 * rank; }
  int note(int rank) const { return change(rank) + 1; }
  int groups(int rank) const { return kFixed + 3 * world_size_ + rank; }
  int digest(int rank) const { return kFixed + 4 * world_size_ + rank; }
  void refuse_different_parameters(const double* fact) const;
  bool writes_differ(const double* fact) const;
  // The facts of parameters come last, so the place of one is the number of facts before it.
  int64_t used(int64_t parameter) const {
    return plan::facts_of_step(world_size_, static_cast<size_t>(parameter));
  }

  int world_size_;
  std::vector<std::string> names_;
};

}  // namespace trireme
