// Decides which checkpoints of a folder stay. Pure.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace trireme::checkpoint {

// The value of evaluations by which checkpoints are compared.
struct BestBy {
  std::string measure = "loss";  // loss, accuracy, or the name of a metric.
  bool higher_is_better = false;
};

struct RetentionOptions {
  // The number of newest checkpoints that stay. At least 1.
  int keep = 2;
  // Checkpoints of steps that are a multiple of it stay for ever; 0: none.
  int64_t keep_every = 0;
  // The number of checkpoints with the best evaluations that stay.
  int keep_best = 0;
  BestBy best_by = {};
};

// Step -> the measure at that step, if there was an evaluation.
using Measured = std::map<int64_t, std::optional<double>>;

// Returns the steps that may be removed once `saved` is durable. They never include `saved` or a
// later step, which may be damaged or belong to another run. If two values are equal, the older
// checkpoint counts as better. NaN and infinity do not count as values.
std::vector<int64_t> outdated(const Measured& checkpoints, int64_t saved,
                              const RetentionOptions& options);

}  // namespace trireme::checkpoint
