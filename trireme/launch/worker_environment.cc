#include <trireme/launch/worker_environment.h>

#include <algorithm>
#include <map>

namespace trireme::launch {

LocalWorkers local_workers_of(int workers, int nodes, int node) {
  const int each = workers / nodes;
  const int nodes_with_one_more = workers % nodes;
  return {.first = node * each + std::min(node, nodes_with_one_more),
          .count = each + (node < nodes_with_one_more ? 1 : 0)};
}

std::vector<std::string> worker_environment(const SupervisorOptions& options,
                                            const JobFacts& facts, int local_worker,
                                            const std::vector<std::string>& inherited) {
  std::map<std::string, std::string> variables;
  for (const std::string& entry : inherited) {
    if (const size_t equals = entry.find('='); equals != std::string::npos)
      variables[entry.substr(0, equals)] = entry.substr(equals + 1);
  }
  for (const auto& [name, value] : options.environment) variables[name] = value;

  const LocalWorkers local = local_workers_of(options.workers, options.nodes, options.node);
  variables["TRIREME_WORKER"] = std::to_string(local.first + local_worker);
  variables["TRIREME_WORKERS"] = std::to_string(options.workers);
  variables["TRIREME_LOCAL_WORKER"] = std::to_string(local_worker);
  variables["TRIREME_LOCAL_WORKERS"] = std::to_string(local.count);
  variables["TRIREME_RENDEZVOUS"] = facts.rendezvous;
  variables["TRIREME_GENERATION"] = "0";
  if (options.elastic) {
    variables["TRIREME_WORKERS"] = variables["TRIREME_LOCAL_WORKERS"] =
        std::to_string(options.elastic->maximum);
    variables["TRIREME_ELASTIC"] =
        std::to_string(options.elastic->minimum) + ":" + std::to_string(options.elastic->maximum);
    if (options.elastic->unit > 1)
      variables["TRIREME_UNIT"] = std::to_string(options.elastic->unit);
    variables["TRIREME_PROCESS"] = std::to_string(facts.process);
    variables["TRIREME_LAUNCHER"] = std::to_string(facts.launcher);
    variables["TRIREME_LAUNCHER_GRACE_MS"] = std::to_string(options.launcher_grace.count());
    variables["TRIREME_STOP_GRACE_MS"] = std::to_string(options.stop_grace.count());
  }
  variables["TRIREME_PHASE_PAGE"] = facts.page;
  variables["TRIREME_JOB"] = facts.job;
  variables["TRIREME_JOB_TOKEN"] = facts.token;
  variables.erase("TRIREME_JOB_TOKEN_FILE");  // The token above was read from this file.

  const int threads = options.threads_per_worker > 0 ? options.threads_per_worker
                                                     : std::max(1, facts.cores / local.count);
  for (const char* name : {"OMP_NUM_THREADS", "MKL_NUM_THREADS"})
    variables.try_emplace(name, std::to_string(threads));

  std::vector<std::string> environment;
  for (const auto& [name, value] : variables) environment.push_back(name + "=" + value);
  return environment;
}

}  // namespace trireme::launch
