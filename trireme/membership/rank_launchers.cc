#include <fmt/format.h>
#include <trireme/base/deadline.h>
#include <trireme/base/error.h>
#include <trireme/membership/rank_launchers.h>
#include <trireme/membership/units.h>
#include <trireme/membership/variables.h>
#include <unistd.h>

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
  if (environment.get_int(names.local_worker).value_or(0) > 0 &&
      !environment.get(names.local_workers))
    throw missing(names.local_workers, names.local_worker);
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

net::Endpoint master_of(const Environment& environment) {
  const std::string host = required_host(environment, "MASTER_ADDR", "WORLD_SIZE");
  const int port = required(environment, "MASTER_PORT", "WORLD_SIZE");
  require_range("MASTER_PORT", port, 1, 65535, "that is not a port");
  return {host, port};
}

bool is_true(const std::optional<std::string>& text) {
  return text == "True" || text == "true" || text == "1";
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

}  // namespace

std::optional<Elastic> elastic_from(const Environment& environment) {
  const auto text = environment.get("TRIREME_ELASTIC");
  if (!text) return std::nullopt;
  Elastic elastic = parse_elastic(*text, "environment variable TRIREME_ELASTIC");
  elastic.unit = environment.get_int("TRIREME_UNIT").value_or(1);
  check_units(elastic.unit, "TRIREME_UNIT", elastic.minimum, elastic.maximum, elastic.maximum);
  return elastic;
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

Identity from_openmpi(const Environment& environment) {
  const auto job = environment.get("OMPI_MCA_ess_base_jobid");
  return from_mpirun(environment,
                     {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
                      "OMPI_COMM_WORLD_LOCAL_SIZE"},
                     job ? *job : environment.get("PMIX_NAMESPACE").value_or("openmpi"));
}

// Hydra names no job, but it is the parent of all processes that it starts on a host.
Identity from_mpich(const Environment& environment) {
  return from_mpirun(environment, {"PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"},
                     std::to_string(getppid()));
}

}  // namespace trireme::membership
