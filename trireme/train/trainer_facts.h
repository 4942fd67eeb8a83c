// The facts of a run that must be equal on all of its processes.
#pragma once
#include <trireme/train/trainer.h>
#include <map>
#include <string>

namespace trireme {

// The run's configuration, and all options of the Trainer whose rows say that the ranks agree on
// them, under their keys. Paths, listeners and options of speed may differ from process to
// process. `test` may be null.
std::map<std::string, std::string> facts_of(const TrainerOptions& options, const Job& job,
                                            const Source& train, const Source* test);

// Throws Error(invalid_argument) if checkpoint.measure, early_stop.measure or evaluator.measure is
// no value of the job's evaluations, if early_stop has no evaluations, and as check() of metrics
// does. `test` may be null.
void check_evaluations(const TrainerOptions& options, const Job& job, const Source* test);

}  // namespace trireme
