#include <fmt/format.h>
#include <trireme/base/error.h>
#include <trireme/membership/kubernetes_job.h>
#include <trireme/membership/variables.h>
#include <algorithm>
#include <array>
#include <optional>

namespace trireme::membership {
namespace {

constexpr const char* kIndex = "JOB_COMPLETION_INDEX";
constexpr int kUsualPort = 29500;  // Torchrun's. A pod has its own network, so the port is free.

[[noreturn]] void refuse_pod(const std::string& what, const std::string& remedy) {
  throw Error(ErrorCode::invalid_argument, "membership", what, remedy);
}

bool has(const Environment& environment, const char* name) {
  return environment.get(name).value_or("") != "";
}

// The first of these variables that is set.
template <size_t N>
const char* first_set(const Environment& environment, const std::array<const char*, N>& names) {
  const auto found =
      std::ranges::find_if(names, [&](const char* name) { return has(environment, name); });
  return found == names.end() ? nullptr : *found;
}

// Kubeflow sets two names for one thing. Each says the same, or the pod template is wrong.
void require_same(const Environment& environment, const char* one, const char* other) {
  if (!has(environment, one) || !has(environment, other)) return;
  if (environment.get(one) == environment.get(other)) return;
  refuse_pod(fmt::format("environment variable {}={}, but {}={}", one, *environment.get(one),
                         other, *environment.get(other)),
             fmt::format("the same value in both, or {} alone", one));
}

void require_one_process_in_a_pod(const Environment& environment) {
  const std::string text = environment.get("PET_NPROC_PER_NODE").value_or("1");
  const bool is_number = !text.empty() && std::ranges::all_of(text, [](unsigned char c) {
    return c >= '0' && c <= '9';
  });
  // auto, cpu and gpu leave the number to torchrun. The operator counts such a pod as one process.
  if (!is_number || text == "1") return;
  refuse_pod(
      fmt::format("environment variable PET_NPROC_PER_NODE={}: a pod has so many processes, "
                  "and torchrun has not started this one",
                  text),
      "torchrun before the command, or one process in a pod (nprocPerNode: 1)");
}

// PET_NNODES may be MIN:MAX, which only torchrun understands.
int pods_of(const Environment& environment, const char* present) {
  const std::string nodes = environment.get("PET_NNODES").value_or("");
  const bool is_range = nodes.find(':') != std::string::npos;
  const bool has_size = has(environment, "WORLD_SIZE");
  if (is_range && !has_size)
    refuse_pod(fmt::format("environment variable PET_NNODES={}: torchrun decides how many pods "
                           "take part, and it has not started this process",
                           nodes),
               "torchrun before the command, or WORLD_SIZE, RANK and MASTER_ADDR in the pod "
               "template");
  if (!is_range) require_same(environment, "WORLD_SIZE", "PET_NNODES");
  const char* const name = has_size || nodes.empty() ? "WORLD_SIZE" : "PET_NNODES";
  const int pods = required(environment, name, present);
  require_range(name, pods, 1, kMaxWorkers, "a job has at least 1 worker");
  return pods;
}

struct NamesInJobSet {
  const char *index, *count;
};
constexpr std::array kNamesInJobSet{NamesInJobSet{"JOB_GLOBAL_INDEX", "GLOBAL_REPLICAS"},
                                    NamesInJobSet{"JOB_INDEX", "REPLICATED_JOB_REPLICAS"}};

// JOB_COMPLETION_INDEX counts the pods of one Job. A JobSet may have several Jobs.
int number_in_job_set(const Environment& environment, int pods) {
  const int inside = required(environment, kIndex, "WORLD_SIZE");
  for (const auto& [index, count] : kNamesInJobSet) {
    if (!has(environment, index) || !has(environment, count)) continue;
    const int jobs = required(environment, count, index);
    require_range(count, jobs, 1, pods, fmt::format("WORLD_SIZE={}", pods));
    if (pods % jobs != 0)
      refuse_pod(fmt::format("WORLD_SIZE={} is no multiple of {}={}, so the number of pods of a "
                             "Job is unknown",
                             pods, count, jobs),
                 "RANK in the pod template, the number of the pod in the whole job");
    const int job = required(environment, index, count);
    require_range(index, job, 0, jobs - 1, fmt::format("{}={}", count, jobs));
    require_range(kIndex, inside, 0, pods / jobs - 1,
                  fmt::format("WORLD_SIZE={} and {}={}, so each Job has {} pods", pods, count,
                              jobs, pods / jobs));
    return job * (pods / jobs) + inside;
  }
  for (const auto& [index, count] : kNamesInJobSet)
    if (has(environment, index) && required(environment, index, kIndex) != 0)
      refuse_pod(fmt::format("environment variable {}={}, but {} is missing: other Jobs have pods "
                             "with {}={} too",
                             index, *environment.get(index), count, kIndex, inside),
                 fmt::format("{} in the pod template, from the label of JobSet", count));
  require_range(kIndex, inside, 0, pods - 1, fmt::format("the job has {} pods", pods));
  return inside;
}

int number_of_pod(const Environment& environment, int pods) {
  const char* const name = first_set(environment, std::array{"RANK", "PET_NODE_RANK"});
  if (!name) {
    if (!has(environment, kIndex)) throw missing("RANK", "WORLD_SIZE");
    return number_in_job_set(environment, pods);
  }
  require_same(environment, "RANK", "PET_NODE_RANK");
  const int number = required(environment, name, "WORLD_SIZE");
  require_range(name, number, 0, pods - 1, fmt::format("the job has {} pods", pods));
  // A number that is written into the pod template is the same in all pods.
  if (const auto index = environment.get_int(kIndex); index && number < *index)
    refuse_pod(fmt::format("environment variable {}={}, but {}={}: pods of the job would share "
                           "numbers",
                           name, number, kIndex, *index),
               fmt::format("{} from the annotation batch.kubernetes.io/job-completion-index, or "
                           "no {}",
                           name, name));
  return number;
}

// Empty if it is unknown: if Jobs of several names take part, only the pods of one know its name.
std::string name_of_pod_0_in_job_set(const Environment& environment) {
  const auto set = environment.get("JOBSET_NAME"), job = environment.get("REPLICATED_JOB_NAME");
  const auto all = environment.get("GLOBAL_REPLICAS");
  const bool has_one_name = all ? all == environment.get("REPLICATED_JOB_REPLICAS")
                                : !has(environment, "JOB_GLOBAL_INDEX");
  return set && job && has_one_name ? fmt::format("{}-{}-0-0.{}", *set, *job, *set) : "";
}

net::Endpoint address_of_pod_0(const Environment& environment) {
  require_same(environment, "MASTER_ADDR", "PET_MASTER_ADDR");
  require_same(environment, "MASTER_PORT", "PET_MASTER_PORT");
  net::Endpoint pod{.host = {}, .port = kUsualPort};
  if (const char* name = first_set(environment, std::array{"MASTER_PORT", "PET_MASTER_PORT"})) {
    pod.port = required(environment, name, "WORLD_SIZE");
    require_range(name, pod.port, 1, 65535, "that is not a port");
  }
  if (const char* name = first_set(environment, std::array{"MASTER_ADDR", "PET_MASTER_ADDR"})) {
    pod.host = required_host(environment, name, "WORLD_SIZE");
  } else if (const std::string host = name_of_pod_0_in_job_set(environment); !host.empty()) {
    pod.host = host;
  } else {
    refuse_pod("environment variable MASTER_ADDR is missing, but the job has several pods",
               "the name of pod 0 in the pod template: JOB-0.SERVICE, with the headless service "
               "that its subdomain names");
  }
  return pod;
}

}  // namespace

bool is_pod_of_a_job(const Environment& environment) {
  const bool is_numbered = has(environment, "RANK") && has(environment, "LOCAL_RANK");
  if (is_numbered || has(environment, "TORCHELASTIC_RUN_ID")) return false;
  if (!has(environment, kIndex) && !has(environment, "KUBERNETES_SERVICE_HOST")) return false;
  if (has(environment, "RANK") || has(environment, "WORLD_SIZE")) return true;
  if (has(environment, "OMPI_COMM_WORLD_RANK") || has(environment, "PMI_RANK")) return false;
  return has(environment, "PET_NNODES") || has(environment, "PET_NODE_RANK") ||
         (has(environment, kIndex) && has(environment, "MASTER_ADDR"));
}

Identity from_kubernetes(const Environment& environment) {
  const char* const present =
      first_set(environment, std::array{"RANK", "PET_NODE_RANK", "MASTER_ADDR", kIndex});
  Identity identity;
  identity.launcher = Launcher::kubernetes;
  require_one_process_in_a_pod(environment);
  identity.workers = pods_of(environment, present ? present : kIndex);
  identity.worker = number_of_pod(environment, identity.workers);
  if (identity.workers == 1) return identity;  // There is no other pod to meet.
  identity.rendezvous = address_of_pod_0(environment);
  identity.hosts_coordinator = identity.worker == 0;
  identity.job_id = "kubernetes-" + identity.rendezvous->describe();
  return identity;
}

std::string why_no_job_of_pods(const Environment&) {
  return "nothing says how many pods there are, so each pod is alone; WORLD_SIZE and MASTER_ADDR "
         "in the pod template make them one job";
}

}  // namespace trireme::membership
