// The first lines that a run prints: they say how it differs from a plain run.
#pragma once
#include <trireme/train/trainer.h>
#include <string>
#include <vector>

namespace trireme {

// `scaled_rate` is the rate that the schedule starts from. Returns nothing for a plain run.
std::vector<std::string> first_lines(const TrainerOptions& options, int world_size,
                                     double scaled_rate);
// Returns the type in which forward computes, and the type of the parameters if it differs:
// "bfloat16, parameters float32".
std::string precision_of(const TrainerOptions& options);

}  // namespace trireme
