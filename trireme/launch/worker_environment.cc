#include <trireme/launch/worker_environment.h>

#include <algorithm>
#include <map>

namespace trireme::launch {

namespace {

using Variables = std::map<std::string, std::string>;

Variables variables_of(const SupervisorOptions& options,
                       const std::vector<std::string>& inherited) {
  Variables variables;
  for (const std::string& entry : inherited) {
    if (const size_t equals = entry.find('='); equals != std::string::npos)
      variables[entry.substr(0, equals)] = entry.substr(equals + 1);
  }
  for (const auto& [name, value] : options.environment) variables[name] = value;
  return variables;
}

// The variables that all processes of a job have.
void add_facts(Variables& variables, const JobFacts& facts) {
  variables["TRIREME_RENDEZVOUS"] = facts.rendezvous;
  variables["TRIREME_GENERATION"] = "0";
  variables["TRIREME_PHASE_PAGE"] = facts.page;
  variables["TRIREME_JOB"] = facts.job;
  variables["TRIREME_JOB_TOKEN"] = facts.token;
  variables.erase("TRIREME_JOB_TOKEN_FILE");  // The token above was read from this file.
}

void add_task(Variables& variables, const membership::Task& task) {
  variables["TRIREME_ROLE"] = task.role;
  variables["TRIREME_INDEX"] = std::to_string(task.index);
}

std::vector<std::string> to_entries(const SupervisorOptions& options, const JobFacts& facts,
                                    Variables variables) {
  const int here =
      membership::local_workers_of(options.workers, options.nodes, options.node).count;
  const int threads = options.threads_per_worker > 0 ? options.threads_per_worker
                                                     : std::max(1, facts.cores / here);
  for (const char* name : {"OMP_NUM_THREADS", "MKL_NUM_THREADS"})
    variables.try_emplace(name, std::to_string(threads));
  std::vector<std::string> environment;
  for (const auto& [name, value] : variables) environment.push_back(name + "=" + value);
  return environment;
}

}  // namespace

std::vector<std::string> worker_environment(const SupervisorOptions& options,
                                            const JobFacts& facts, int local_worker,
                                            const std::vector<std::string>& inherited) {
  Variables variables = variables_of(options, inherited);
  const membership::LocalWorkers local =
      membership::local_workers_of(options.workers, options.nodes, options.node);
  variables["TRIREME_WORKER"] = std::to_string(local.first + local_worker);
  variables["TRIREME_WORKERS"] = std::to_string(options.workers);
  variables["TRIREME_LOCAL_WORKER"] = std::to_string(local_worker);
  variables["TRIREME_LOCAL_WORKERS"] = std::to_string(local.count);
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
  // This launcher may itself be a side task of another job.
  for (const char* name : {"TRIREME_ROLE", "TRIREME_INDEX"}) variables.erase(name);
  const int number = local.first + local_worker;
  const bool is_chief = options.has_chief && number == 0;
  if (!options.roles.empty() || options.has_chief)
    add_task(variables, {is_chief ? membership::kChiefRole : membership::kWorkerRole, number});
  add_facts(variables, facts);
  return to_entries(options, facts, std::move(variables));
}

std::vector<std::string> side_task_environment(const SupervisorOptions& options,
                                               const JobFacts& facts, int number,
                                               const std::vector<std::string>& inherited) {
  Variables variables = variables_of(options, inherited);
  // These would make it a worker of this job, or of a job whose worker this launcher is.
  for (const char* name : {"TRIREME_WORKER", "TRIREME_LOCAL_WORKER", "TRIREME_LOCAL_WORKERS",
                           "TRIREME_ELASTIC", "TRIREME_UNIT", "TRIREME_PROCESS"})
    variables.erase(name);
  variables["TRIREME_WORKERS"] = std::to_string(options.workers);
  add_task(variables, options.roles.task_of(number));
  add_facts(variables, facts);
  return to_entries(options, facts, std::move(variables));
}

}  // namespace trireme::launch
