// Decides which checkpoints of a folder stay. Pure.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

namespace trireme::checkpoint {

struct RetentionOptions {
  // The number of newest checkpoints that stay. At least 1.
  int keep = 2;
  // Checkpoints of steps that are a multiple of it stay for ever; 0: none.
  int64_t keep_every = 0;
  // The number of checkpoints with the lowest evaluation loss that stay.
  int keep_best = 0;
};

// Step -> evaluation loss at that step, if there was one.
using Losses = std::map<int64_t, std::optional<double>>;

// Returns the steps that may be removed once `saved` is durable. They never include `saved` or a
// later step, which may be damaged or belong to another run. If two losses are equal, the older
// checkpoint counts as better. NaN and infinity do not count as losses.
std::vector<int64_t> outdated(const Losses& checkpoints, int64_t saved,
                              const RetentionOptions& options);

}  // namespace trireme::checkpoint
