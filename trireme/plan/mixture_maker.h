// Divides an epoch among the sources of a mixture (mixture.h). Pure.
#pragma once
#include <trireme/plan/mixture.h>
#include <cstdint>
#include <optional>
#include <vector>

namespace trireme::plan {

// Whole numbers with this sum, in proportion to the weights: each share is rounded down, and the
// largest remainders get one more (of equal ones the first).
std::vector<int64_t> apportioned(int64_t sum, const std::vector<double>& weights);

struct MixtureMaker {
  // The places [begin, end) of an epoch with these counts.
  static Mixture::Stretch stretch(int64_t begin, std::vector<int64_t> before,
                                  std::vector<int64_t> counts);
  // The epochs from the weights' first position on. Sets the samples of an epoch where the sources
  // decide them.
  static std::vector<Mixture::Epochs> epochs(const MixtureOptions& options, int64_t& samples);

 private:
  static Mixture::Epochs epoch_of_passes(const MixtureOptions& options, int64_t& samples);
  static Mixture::Epochs epoch_of_weights(const MixtureOptions& options, int64_t number,
                                          int64_t samples);
};

}  // namespace trireme::plan
