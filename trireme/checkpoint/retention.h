// Which checkpoints of a folder stay. Pure.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

namespace trireme::checkpoint {

struct RetentionOptions {
  int keep = 2;            // The newest so many. At least 1.
  int64_t keep_every = 0;  // Those of steps that are a multiple of it stay for ever; 0: none.
  int keep_best = 0;       // So many of the lowest evaluation loss.
};

// Step -> evaluation loss at that step, if there was one.
using Losses = std::map<int64_t, std::optional<double>>;

// The steps that may go once `saved` is durable. Never `saved`, nor one of a later step (damaged,
// or of another run). Of equal losses the older one is the better. NaN and infinity are no losses.
std::vector<int64_t> outdated(const Losses& checkpoints, int64_t saved,
                              const RetentionOptions& options);

}  // namespace trireme::checkpoint
