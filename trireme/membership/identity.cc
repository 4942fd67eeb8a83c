#include <fmt/format.h>
#include <trireme/base/deadline.h>
#include <trireme/base/error.h>
#include <trireme/base/text.h>
#include <trireme/membership/foreign_launchers.h>
#include <trireme/membership/identity.h>
#include <trireme/membership/secret_file.h>
#include <trireme/membership/units.h>
#include <trireme/membership/variables.h>
#include <unistd.h>
#include <charconv>
#include <chrono>

namespace trireme::membership {
namespace {

// The four numbers that every launcher hands out, under its own names.
struct Names {
  const char *worker, *workers, *local_worker, *local_workers;
};

void read_numbers(const Environment& environment, const Names& names, Identity& identity) {
  const std::string present = environment.get(names.workers) ? names.workers : names.worker;
  identity.workers = required(environment, names.workers, present);
  require_range(names.workers, identity.workers, 1, kMaxWorkers, "a job has at least 1 worker");
  identity.worker = required(environment, names.worker, present);
  require_range(names.worker, identity.worker, 0, identity.workers - 1,
                fmt::format("the job has {} workers", identity.workers));
  identity.local_workers = environment.get_int(names.local_workers).value_or(1);
  require_range(names.local_workers, identity.local_workers, 1, identity.workers,
                fmt::format("the job has {} workers", identity.workers));
  identity.local_worker = environment.get_int(names.local_worker).value_or(0);
  require_range(names.local_worker, identity.local_worker, 0, identity.local_workers - 1,
                fmt::format("this host has {} workers", identity.local_workers));
}

void read_rendezvous(const std::string& name, const std::string& text, Identity& identity) {
  if (net::is_etcd_url(text)) {
    identity.etcd = net::parse_etcd_url(text);
    return;
  }
  try {
    if (const auto endpoint = net::parse_endpoint(text); endpoint.port > 0) {
      identity.rendezvous = endpoint;
      return;
    }
  } catch (const Error&) {
  }
  throw Error(ErrorCode::invalid_argument, "membership",
              fmt::format("environment variable {}='{}' is not HOST:PORT", name, text),
              "for example 10.0.0.1:29500, or etcd://10.0.0.5:2379/my-training");
}

// A side task knows how many workers the job begins with, and where to join.
Identity of_side_task(const Environment& environment, const std::string& role) {
  Identity identity;
  identity.launcher = Launcher::trireme;
  identity.task = {role, required(environment, "TRIREME_INDEX", "TRIREME_ROLE")};
  require_range("TRIREME_INDEX", identity.task.index, 0, kFirstSideTask,
                "tasks are numbered from 0");
  identity.worker = -1;
  identity.workers = required(environment, "TRIREME_WORKERS", "TRIREME_ROLE");
  require_range("TRIREME_WORKERS", identity.workers, 1, kMaxWorkers,
                "a job has at least 1 worker");
  const auto rendezvous = environment.get("TRIREME_RENDEZVOUS");
  if (!rendezvous) throw missing("TRIREME_RENDEZVOUS", "TRIREME_ROLE");
  read_rendezvous("TRIREME_RENDEZVOUS", *rendezvous, identity);
  return identity;
}

std::optional<Elastic> elastic_from(const Environment& environment) {
  const auto text = environment.get("TRIREME_ELASTIC");
  if (!text) return std::nullopt;
  Elastic elastic = parse_elastic(*text, "environment variable TRIREME_ELASTIC");
  elastic.unit = environment.get_int("TRIREME_UNIT").value_or(1);
  check_units(elastic.unit, "TRIREME_UNIT", elastic.minimum, elastic.maximum, elastic.maximum);
  return elastic;
}

// The number of this start of a worker, which no launcher numbers. A later start of the same task
// has another number, and the numbers of the tasks have the tasks' order.
int64_t process_by_the_clock(int worker) {
  constexpr int64_t kLatest = int64_t{1} << 42;  // In the year 2109.
  const auto since_1970 = std::chrono::system_clock::now().time_since_epoch();
  return worker * kLatest +
         std::chrono::duration_cast<std::chrono::milliseconds>(since_1970).count();
}

// A cluster's own means replace a worker that is lost, or do not. All tasks of the job have the
// same variables.
void let_workers_of_cluster_change(const Environment& environment, Identity& identity) {
  const auto elastic = elastic_from(environment);
  const bool has_others = identity.workers > 1 || identity.rendezvous;
  if (!elastic || !has_others || !(identity.is_worker() || identity.hosts_coordinator)) return;
  if (elastic->maximum != identity.workers)
    throw Error(ErrorCode::invalid_argument, "membership",
                fmt::format("environment variable TRIREME_ELASTIC={}:{}, but the cluster has {} "
                            "workers",
                            elastic->minimum, elastic->maximum, identity.workers),
                fmt::format("MIN:{}", identity.workers));
  identity.elastic = elastic;
  identity.elastic->process = process_by_the_clock(identity.worker);
}

Identity from_trireme(const Environment& environment) {
  const std::string role = environment.get("TRIREME_ROLE").value_or(kWorkerRole);
  // A role of the user's own may have the name too; its tasks are no workers.
  const bool is_chief = role == kChiefRole && environment.get("TRIREME_WORKER");
  if (role != kWorkerRole && !is_chief) return of_side_task(environment, role);
  Identity identity;
  identity.launcher = Launcher::trireme;
  identity.is_chief = is_chief;
  read_numbers(
      environment,
      {"TRIREME_WORKER", "TRIREME_WORKERS", "TRIREME_LOCAL_WORKER", "TRIREME_LOCAL_WORKERS"},
      identity);
  identity.generation = environment.get_int("TRIREME_GENERATION").value_or(0);
  if ((identity.elastic = elastic_from(environment))) {
    const auto process = environment.get_int64("TRIREME_PROCESS");
    if (!process) throw missing("TRIREME_PROCESS", "TRIREME_ELASTIC");
    identity.elastic->process = *process;
    identity.elastic->launcher = environment.get_int("TRIREME_LAUNCHER").value_or(0);
    if (const auto grace = environment.get_int64("TRIREME_LAUNCHER_GRACE_MS"))
      identity.elastic->launcher_grace = saturated(Milliseconds(*grace));
    if (const auto grace = environment.get_int64("TRIREME_STOP_GRACE_MS"))
      identity.elastic->stop_grace = saturated(Milliseconds(*grace));
  }
  if (const auto text = environment.get("TRIREME_RENDEZVOUS")) {
    read_rendezvous("TRIREME_RENDEZVOUS", *text, identity);
  } else if (identity.workers > 1 || identity.elastic) {
    throw missing("TRIREME_RENDEZVOUS", identity.elastic ? "TRIREME_ELASTIC" : "TRIREME_WORKERS");
  }
  return identity;
}

net::Endpoint master_of(const Environment& environment) {
  const std::string host = required_text(environment, "MASTER_ADDR", "WORLD_SIZE");
  const int port = required(environment, "MASTER_PORT", "WORLD_SIZE");
  require_range("MASTER_PORT", port, 1, 65535, "that is not a port");
  return {host, port};
}

bool is_true(const std::optional<std::string>& text) {
  return text == "True" || text == "true" || text == "1";
}

Identity from_torchrun(const Environment& environment) {
  Identity identity;
  identity.launcher = Launcher::torchrun;
  read_numbers(environment, {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"}, identity);
  identity.generation = environment.get_int("TORCHELASTIC_RESTART_COUNT").value_or(0);
  if (identity.workers == 1) return identity;  // There is no other worker to meet.

  const net::Endpoint master = master_of(environment);
  identity.hosts_coordinator = identity.worker == 0;
  // In this case the agent itself holds MASTER_PORT and serves its store there.
  if (is_true(environment.get("TORCHELASTIC_USE_AGENT_STORE"))) {
    identity.agent_store = master;
  } else {
    identity.rendezvous = master;
  }
  if (const auto run = environment.get("TORCHELASTIC_RUN_ID"))
    identity.job_id = fmt::format("{}-{}", *run, master.port);
  return identity;
}

// mpirun gives its workers no rendezvous. They meet by the token file inside a host, and through
// MPI between hosts.
Identity from_mpirun(const Environment& environment, const Names& names, const std::string& job) {
  Identity identity;
  identity.launcher = Launcher::mpirun;
  read_numbers(environment, names, identity);
  identity.hosts_coordinator = identity.workers > 1 && identity.worker == 0;
  identity.job_id = "mpirun-" + job;
  return identity;
}

Identity from_openmpi(const Environment& environment) {
  return from_mpirun(environment,
                     {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
                      "OMPI_COMM_WORLD_LOCAL_SIZE"},
                     environment.get("OMPI_MCA_ess_base_jobid").value_or("openmpi"));
}

// Hydra names no job, but it is the parent of all processes that it starts on a host.
Identity from_mpich(const Environment& environment) {
  return from_mpirun(environment, {"PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"},
                     std::to_string(getppid()));
}

std::string_view to_string(Launcher launcher) {
  switch (launcher) {
    case Launcher::alone: return "no launcher";
    case Launcher::trireme: return "trireme launch";
    case Launcher::torchrun: return "torchrun";
    case Launcher::mpirun: return "mpirun";
    case Launcher::tf_config: return "TF_CONFIG";
    case Launcher::dmlc: return "DMLC_ROLE";
    case Launcher::slurm: return "srun";
  }
  return "no launcher";
}

}  // namespace

std::optional<std::string> token_from(const Environment& environment) {
  const auto long_enough = [](std::string_view text, const std::string& where) {
    const std::string token(trimmed(text));
    if (token.size() >= kMinTokenBytes) return token;
    throw Error(ErrorCode::invalid_argument, "membership",
                fmt::format("the job token in {} has {} bytes; it must have {} or more, or others "
                            "can guess it",
                            where, token.size(), kMinTokenBytes),
                "the output of `openssl rand -hex 32`, the same for all workers");
  };
  if (const auto token = environment.get("TRIREME_JOB_TOKEN"))
    return long_enough(*token, "TRIREME_JOB_TOKEN");
  if (const auto path = environment.get("TRIREME_JOB_TOKEN_FILE"))
    return long_enough(read_secret_file(*path, Symlink::follow),
                       fmt::format("the file {} (TRIREME_JOB_TOKEN_FILE)", *path));
  return std::nullopt;
}

bool is_cluster(Launcher launcher) {
  return launcher == Launcher::tf_config || launcher == Launcher::dmlc ||
         launcher == Launcher::slurm;
}

Identity resolve_identity(const Environment& environment) {
  const auto any_of = [&](const char* one, const char* other) {
    return environment.get(one) || environment.get(other);
  };
  Identity identity;
  if (any_of("TRIREME_WORKER", "TRIREME_WORKERS")) {
    identity = from_trireme(environment);
  } else if (environment.get("TF_CONFIG").value_or("") != "") {
    identity = from_tf_config(environment);
  } else if (environment.get("DMLC_ROLE")) {
    identity = from_dmlc(environment);
  } else if (any_of("RANK", "WORLD_SIZE")) {
    identity = from_torchrun(environment);
  } else if (any_of("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE")) {
    identity = from_openmpi(environment);
  } else if (is_task_of_slurm(environment) && !environment.get("MPI_LOCALRANKID")) {
    identity = from_slurm(environment);  // srun may set PMI's variables too.
  } else if (any_of("PMI_RANK", "PMI_SIZE")) {
    identity = from_mpich(environment);
  }
  if (is_cluster(identity.launcher)) let_workers_of_cluster_change(environment, identity);
  if (identity.is_worker()) identity.task.index = identity.worker;
  identity.token = token_from(environment);
  return identity;
}

Elastic parse_elastic(const std::string& text, const std::string& where) {
  const auto wrong = [&](const std::string& why) {
    return Error(
        ErrorCode::invalid_argument, "membership", fmt::format("{} is '{}': {}", where, text, why),
        "MIN:MAX, such as 1:4: the job needs MIN workers to continue and never has more than MAX");
  };
  Elastic elastic;
  const char* const end = text.data() + text.size();
  const auto first = std::from_chars(text.data(), end, elastic.minimum);
  if (first.ec != std::errc() || first.ptr == end || *first.ptr != ':')
    throw wrong("not two numbers with a colon between them");
  const auto second = std::from_chars(first.ptr + 1, end, elastic.maximum);
  if (second.ec != std::errc() || second.ptr != end)
    throw wrong("not two numbers with a colon between them");
  if (elastic.minimum < 1) throw wrong("a job has at least 1 worker");
  if (elastic.maximum < elastic.minimum) throw wrong("the maximum is below the minimum");
  if (elastic.maximum > kMaxWorkers) throw wrong(fmt::format("more than {} workers", kMaxWorkers));
  return elastic;
}

std::string Identity::describe() const {
  if (launcher == Launcher::alone) return "alone: one worker, started by no launcher";
  std::string text =
      is_worker()
          ? fmt::format("{}worker {} of {} ({} of {} on this host), generation {}, started by {}",
                        is_chief ? "chief, " : "", worker, workers, local_worker, local_workers,
                        generation, to_string(launcher))
          : fmt::format("{} of a job that began with {} workers, started by {}", task.name(),
                        workers, to_string(launcher));
  if (rendezvous) text += fmt::format("; coordinator at {}", rendezvous->describe());
  if (etcd)
    text += fmt::format("; the coordinator's address is published at {}", etcd->describe());
  if (agent_store)
    text += fmt::format("; the coordinator's address is published in the store at {}",
                        agent_store->describe());
  if (hosts_coordinator) text += "; this process runs the coordinator";
  if (elastic && is_cluster(launcher))
    text += fmt::format("; the job continues with {} or more of its workers", elastic->minimum);
  if (!roles.empty()) text += fmt::format("; the job may have {} besides", roles.describe());
  return text + (token ? "; job token given" : "; no job token given");
}

}  // namespace trireme::membership
