// `--fresh`: a run that must not continue from what lies in its folders.
#pragma once
#include <trireme/run/config.h>

namespace trireme::cli {

// Moves the checkpoints aside, and the curve of an evaluator, which belongs to them. Nothing is
// removed. Throws Error(io).
void move_run_aside(const Config& config);

}  // namespace trireme::cli
