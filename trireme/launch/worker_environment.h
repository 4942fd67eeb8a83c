// Which workers a launcher starts, and what it tells each by environment variables. Pure.
#pragma once
#include <trireme/launch/supervisor.h>
#include <string>
#include <vector>

namespace trireme::launch {

struct LocalWorkers {
  int first = 0;
  int count = 0;
};
// Workers are dealt out in order; the first nodes have one more if they do not divide evenly.
LocalWorkers local_workers_of(int workers, int nodes, int node);

// What all workers of a job are told.
struct JobFacts {
  std::string rendezvous;  // As bound, or the URL by which etcd says where.
  std::string token;
  int cores = 1;        // Of this host, shared by its workers.
  int64_t process = 0;  // Of an elastic job, and the next one too.
  std::string page;     // PhasePage::handle() of this worker's.
  int launcher = 0;     // This process.
  std::string job;      // JobMark::to_text()
};

// `inherited` ("NAME=value") with options.environment and the variables of
// trireme/launch/identity.h on top, and the thread counts of numeric libraries where nobody has set
// them.
std::vector<std::string> worker_environment(const SupervisorOptions& options, const JobFacts& facts,
                                            int local_worker,
                                            const std::vector<std::string>& inherited);

}  // namespace trireme::launch
