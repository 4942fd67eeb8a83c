// What makes a run another than the plain one: the first lines that it shows.
#pragma once
#include <trireme/train/trainer.h>
#include <string>
#include <vector>

namespace trireme {

// `scaled_rate`: what the schedule starts from. Empty where nothing is peculiar.
std::vector<std::string> first_lines(const TrainerOptions& options, int world_size,
                                     double scaled_rate);
// What forward computes in, and what parameters are where that is another type: "bfloat16,
// parameters float32".
std::string precision_of(const TrainerOptions& options);

}  // namespace trireme
