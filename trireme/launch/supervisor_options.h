// What must hold before a job starts. Connects and starts nothing.
#pragma once
#include <trireme/base/environment.h>
#include <trireme/launch/supervisor.h>
#include <string>

namespace trireme::launch {

// Throws Error(invalid_argument) naming the option, its value and the remedy.
void check_supervisor_options(const SupervisorOptions& options);

// TRIREME_JOB_TOKEN or the content of TRIREME_JOB_TOKEN_FILE; else a fresh one. Throws
// Error(invalid_argument) if several launchers need the same one and there is none.
std::string token_of_job(const SupervisorOptions& options, const Environment& environment);

}  // namespace trireme::launch
