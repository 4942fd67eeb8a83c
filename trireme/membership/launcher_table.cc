#include <fmt/format.h>
#include <fmt/ranges.h>
#include <trireme/membership/foreign_launchers.h>
#include <trireme/membership/kubernetes_job.h>
#include <trireme/membership/launcher_table.h>
#include <trireme/membership/rank_launchers.h>
#include <algorithm>
#include <initializer_list>
#include <set>

namespace trireme::membership {
namespace {

bool any_is_set(const Environment& environment, std::initializer_list<const char*> names) {
  return std::ranges::any_of(names,
                             [&](const char* name) { return environment.get(name).has_value(); });
}

std::string no_number(const Environment&) {
  return "neither the number of this process nor the number of all is set";
}

std::string no_step(const Environment&) {
  return "this process is no task of a step with several tasks; srun starts them";
}

std::string empty_config(const Environment&) { return "it is empty"; }

std::vector<LauncherRow> rows() {
  return {
      {.launcher = Launcher::trireme,
       .is_here =
           [](const Environment& environment) {
             return any_is_set(environment, {"TRIREME_WORKER", "TRIREME_WORKERS"});
           },
       .identity = from_trireme,
       .reads = {"TRIREME_ROLE", "TRIREME_INDEX", "TRIREME_WORKER", "TRIREME_WORKERS",
                 "TRIREME_LOCAL_WORKER", "TRIREME_LOCAL_WORKERS", "TRIREME_GENERATION",
                 "TRIREME_RENDEZVOUS", "TRIREME_ELASTIC", "TRIREME_UNIT", "TRIREME_PROCESS",
                 "TRIREME_LAUNCHER", "TRIREME_LAUNCHER_GRACE_MS", "TRIREME_STOP_GRACE_MS"},
       .others = {},
       .why_not = no_number},
      {.launcher = Launcher::tf_config,
       .is_here =
           [](const Environment& environment) {
             return environment.get("TF_CONFIG").value_or("") != "";
           },
       .identity = from_tf_config,
       .reads = {"TF_CONFIG", "TRIREME_ELASTIC", "TRIREME_UNIT"},
       .others = {},
       .why_not = empty_config},
      {.launcher = Launcher::dmlc,
       .is_here =
           [](const Environment& environment) { return any_is_set(environment, {"DMLC_ROLE"}); },
       .identity = from_dmlc,
       .reads = {"DMLC_ROLE", "DMLC_NUM_WORKER", "DMLC_NUM_SERVER", "DMLC_PS_ROOT_URI",
                 "DMLC_PS_ROOT_PORT", "DMLC_WORKER_ID", "DMLC_SERVER_ID", "DMLC_TASK_ID",
                 "TRIREME_ELASTIC", "TRIREME_UNIT"},
       .others = {},
       .why_not = [](const Environment&) { return std::string("DMLC_ROLE is not set"); }},
      {.launcher = Launcher::kubernetes,
       .is_here = is_pod_of_a_job,
       .identity = from_kubernetes,
       .reads = {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "PET_NODE_RANK", "PET_NNODES",
                 "PET_NPROC_PER_NODE", "PET_MASTER_ADDR", "PET_MASTER_PORT",
                 "JOB_COMPLETION_INDEX", "JOB_GLOBAL_INDEX", "GLOBAL_REPLICAS", "JOB_INDEX",
                 "REPLICATED_JOB_REPLICAS", "JOBSET_NAME", "REPLICATED_JOB_NAME",
                 "TRIREME_ELASTIC", "TRIREME_UNIT"},
       .others = {"PET_RDZV_BACKEND", "PET_RDZV_ENDPOINT", "PET_RDZV_ID", "PET_MAX_RESTARTS"},
       .why_not = why_no_job_of_pods},
      {.launcher = Launcher::torchrun,
       .is_here =
           [](const Environment& environment) {
             return any_is_set(environment, {"RANK", "WORLD_SIZE"});
           },
       .identity = from_torchrun,
       .reads = {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR",
                 "MASTER_PORT", "TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT",
                 "TORCHELASTIC_USE_AGENT_STORE"},
       .others = {"GROUP_RANK", "GROUP_WORLD_SIZE"},
       .why_not = no_number},
      {.launcher = Launcher::mpirun,
       .is_here =
           [](const Environment& environment) {
             return any_is_set(environment, {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"});
           },
       .identity = from_openmpi,
       .reads = {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
                 "OMPI_COMM_WORLD_LOCAL_SIZE", "OMPI_MCA_ess_base_jobid", "PMIX_NAMESPACE"},
       .others = {"PMIX_RANK"},
       .why_not = no_number},
      {.launcher = Launcher::slurm,
       // srun may set PMI's variables too. Hydra starts its proxies by srun.
       .is_here =
           [](const Environment& environment) {
             return is_task_of_slurm(environment) && !environment.get("MPI_LOCALRANKID");
           },
       .identity = from_slurm,
       .reads = {"SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS",
                 "SLURM_LOCALID", "SLURM_NODEID", "SLURM_STEP_NODELIST",
                 "SLURM_STEP_TASKS_PER_NODE", "SLURM_GTIDS", "MASTER_PORT", "TRIREME_PS",
                 "TRIREME_EVALUATOR", "TRIREME_CHIEF", "TRIREME_ELASTIC", "TRIREME_UNIT"},
       .others = {"SLURM_NTASKS", "SLURM_JOB_NODELIST"},
       .why_not = no_step},
      {.launcher = Launcher::mpirun,
       .is_here =
           [](const Environment& environment) {
             return any_is_set(environment, {"PMI_RANK", "PMI_SIZE"});
           },
       .identity = from_mpich,
       .reads = {"PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"},
       .others = {},
       .why_not = no_number}};
}

// "NAME=value" of those that are set and not yet told.
std::vector<std::string> settings_of(const Environment& environment,
                                     const std::vector<std::string>& names,
                                     std::set<std::string>& told) {
  constexpr size_t kLongest = 100;
  std::vector<std::string> settings;
  for (const std::string& name : names) {
    const auto value = environment.get(name);
    if (!value || !told.insert(name).second) continue;
    settings.push_back(fmt::format("{}={}{}", name, value->substr(0, kLongest),
                                   value->size() > kLongest ? "..." : ""));
  }
  return settings;
}

}  // namespace

const std::vector<LauncherRow>& launcher_table() {
  static const std::vector<LauncherRow> table = rows();
  return table;
}

const LauncherRow* find_launcher(const Environment& environment) {
  const auto found = std::ranges::find_if(
      launcher_table(), [&](const LauncherRow& row) { return row.is_here(environment); });
  return found == launcher_table().end() ? nullptr : &*found;
}

Explanation explain_identity(const Environment& environment) {
  Explanation explanation;
  std::set<std::string> told;
  const LauncherRow* const counts = find_launcher(environment);
  if (counts) {
    explanation.title = title_of(counts->launcher);
    explanation.decided = settings_of(environment, counts->reads, told);
  }
  for (const LauncherRow& row : launcher_table()) {
    const bool is_it = &row == counts;
    std::vector<std::string> settings;
    if (!is_it) settings = settings_of(environment, row.reads, told);
    for (std::string& setting : settings_of(environment, row.others, told))
      settings.push_back(std::move(setting));
    if (settings.empty()) continue;
    std::string why = row.why_not(environment);
    if (is_it)
      why = "Trireme does not need them";
    else if (counts)
      why = fmt::format("the variables of {} count more", explanation.title);
    explanation.ignored.push_back(
        {std::string(title_of(row.launcher)), std::move(settings), std::move(why)});
  }
  return explanation;
}

std::string Explanation::describe() const {
  std::string text = title.empty()
                         ? "decided by no variable: no launcher's variables make a job"
                         : fmt::format("decided by {} ({})", fmt::join(decided, ", "), title);
  for (const Ignored& each : ignored)
    text += fmt::format("\nignored {} ({}): {}", fmt::join(each.variables, ", "), each.title,
                        each.why);
  return text;
}

}  // namespace trireme::membership
