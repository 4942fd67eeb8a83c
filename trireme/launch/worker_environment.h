// The workers that a launcher starts, and the environment variables it gives to each. Pure.
#pragma once
#include <trireme/launch/supervisor.h>
#include <string>
#include <vector>

namespace trireme::launch {

// The facts that a launcher gives to a worker.
struct JobFacts {
  std::string rendezvous;  // The coordinator's bound address, or the URL of etcd.
  std::string token;
  int cores = 1;        // The cores of this host, which its workers divide.
  int64_t process = 0;  // The worker's process number in an elastic job.
  std::string page;     // PhasePage::handle() of the worker's page.
  int launcher = 0;     // The process id of this launcher.
  std::string job;      // JobMark::to_text()
};

// The environment of a side task (membership/roles.h). `number` is its number in options.roles.
std::vector<std::string> side_task_environment(const SupervisorOptions& options,
                                               const JobFacts& facts, int number,
                                               const std::vector<std::string>& inherited);

// Returns `inherited` ("NAME=value") with these changes: options.environment and the variables of
// membership/identity.h are set, and so are the thread counts of numeric libraries that have no
// value yet.
std::vector<std::string> worker_environment(const SupervisorOptions& options,
                                            const JobFacts& facts, int local_worker,
                                            const std::vector<std::string>& inherited);

}  // namespace trireme::launch
