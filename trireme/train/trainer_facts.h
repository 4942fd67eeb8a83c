// The facts of a run that must be equal on all of its processes.
#pragma once
#include <trireme/train/trainer.h>
#include <map>
#include <string>

namespace trireme {

// The run's configuration under its keys, and all options of the Trainer that change what is
// computed under "trainer.<option>". Paths, listeners and options of speed may differ from process
// to process. `test` may be null.
std::map<std::string, std::string> facts_of(const TrainerOptions& options, const Job& job,
                                            const Source& train, const Source* test);

}  // namespace trireme
