// What all replicas learn of a step besides gradients, as numbers that a sum over all replicas
// carries.
#pragma once
#include <trireme/parallel/exchange.h>
#include <vector>

namespace trireme {

class StepFacts {
 public:
  StepFacts(int world_size, const std::vector<NamedTensor>& parameters)
      : world_size_(world_size), names_(names_of(parameters)) {}
  int64_t size() const { return used(static_cast<int>(names_.size())); }

  // This replica's part. `has_gradient`: by parameter. A float32 tensor counts exactly up to 2^24.
  void write(const Contribution& mine, int rank, const std::vector<bool>& has_gradient,
             bool gradients_are_finite, const at::Tensor& values) const;

  // Into a part, or a sum of parts: some gradients are not finite.
  void report_bad_gradients(const at::Tensor& values) const {
    values.select(0, kBadGradients).fill_(1);
  }

  struct Summed {
    StepOutcome outcome;    // Loss, samples, stop, regroup, ranks whose loss is not finite, whether
                            // some rank's gradients are not.
    bool weighted = false;  // Gradients were weighted by 1 / total already; else they are sums.
    std::vector<bool> used;  // By parameter: some replica has a gradient.
  };
  // The sum over all replicas. Throws Error(invalid_argument) if some ranks knew the total of
  // samples and others did not, or a rank found a parameter changed.
  Summed read(const at::Tensor& values) const;

 private:
  static constexpr int kLoss = 0, kSamples = 1, kOfKnownTotal = 2, kStop = 3, kRegroup = 4,
                       kBadGradients = 5, kFixed = 6;
  int nonfinite(int rank) const { return kFixed + rank; }
  int change(int rank) const { return kFixed + world_size_ + 2 * rank; }  // And its parameter.
  int used(int parameter) const { return kFixed + 3 * world_size_ + parameter; }

  int world_size_;
  std::vector<std::string> names_;
};

}  // namespace trireme
