// The facts that follow from a job's options. Nothing here opens a connection or starts
// a process.
#pragma once
#include <trireme/base/environment.h>
#include <trireme/launch/supervisor.h>
#include <trireme/watch/job_mark.h>
#include <string>

namespace trireme::launch {

// Throws Error(invalid_argument) naming the option, its value and the remedy.
void check_supervisor_options(const SupervisorOptions& options);

// Returns TRIREME_JOB_TOKEN or the content of TRIREME_JOB_TOKEN_FILE, else a new token. Throws
// Error(invalid_argument) if there is none and several launchers need the same one.
std::string token_of_job(const SupervisorOptions& options, const Environment& environment);

// Makes the mark of the job. This process is its launcher.
watch::JobMark mark_of_job(const SupervisorOptions& options, const std::string& token);

}  // namespace trireme::launch
