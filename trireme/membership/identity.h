// The identity of this process in its job, for every launcher. Opens no connection: it reads only
// the environment.
#pragma once
#include <trireme/base/deadline.h>
#include <trireme/base/environment.h>
#include <trireme/membership/roles.h>
#include <trireme/net/etcd_url.h>
#include <trireme/net/message.h>
#include <optional>
#include <string>
#include <string_view>

namespace trireme::membership {

enum class Launcher { alone, trireme, torchrun, mpirun, tf_config, dmlc, slurm, kubernetes };
std::string_view title_of(Launcher launcher);  // For messages: "trireme launch".

// Whether a cluster's own means start and replace the tasks: tf_config, dmlc, slurm and
// kubernetes. There an elastic job has its coordinator in one of its tasks
// (Identity::hosts_coordinator).
bool is_cluster(Launcher launcher);

// The numbers of workers that an elastic job may have, and this process's part in it (roster.h).
struct Elastic {
  int minimum = 1, maximum = 1;
  int unit = 1;         // The number of workers that come and go together (units.h).
  int64_t process = 0;  // This start of the worker. In a cluster it comes from the clock.
  int launcher = 0;     // The launcher's process id; 0: unknown.
  // The time for which this process continues without its launcher (watch/orphan_watch.h); empty:
  // to the end of the job.
  std::optional<Milliseconds> launcher_grace;
  Milliseconds stop_grace{30000};  // The time it then has to save.
};

struct Identity {
  Launcher launcher = Launcher::alone;
  // The task of this process: worker, or a side task (roles.h), which is no worker.
  Task task;
  bool is_chief = false;  // A worker that the job calls its chief; it is worker 0.
  int worker = 0;         // The number of this worker, 0..workers-1; -1: this is a side task.
  int workers = 1;
  int local_worker = 0;   // The number of this worker on its host.
  int local_workers = 1;  // Those of this host. There may be none beside a side task.
  int generation = 0;
  // The coordinator's address. Empty for a process alone, or if the address is published (below).
  std::optional<net::Endpoint> rendezvous;
  // Whether this process must run the coordinator: worker 0 where no launcher of Trireme's does,
  // or the scheduler of DMLC.
  bool hosts_coordinator = false;
  Roles roles;  // The side tasks of the job, for a coordinator that this process runs.
  // TF_CONFIG: the roles have an evaluator, because the job may have one that nobody lists.
  bool evaluator_is_unlisted = false;
  // torchrun: the coordinator's address is published through this key-value store. Torchrun's
  // agent or rank 0 holds the port.
  std::optional<net::Endpoint> agent_store;
  // The coordinator's address is published there. It changes when another coordinator takes over.
  std::optional<net::EtcdUrl> etcd;
  std::optional<Elastic> elastic;  // If set, each generation assigns worker and workers anew.
  // The name of the token file by which the workers of one host meet without a rendezvous.
  std::string job_id;
  std::optional<std::string> token;  // TRIREME_JOB_TOKEN, or the text in TRIREME_JOB_TOKEN_FILE.
  bool is_worker() const { return task.role == kWorkerRole; }
  // chief, worker, ps, evaluator, scheduler, or a role of the user's own.
  const std::string& role() const { return is_chief ? kChiefRole : task.role; }
  std::string describe() const;  // A line for `doctor` and logs. It never shows the token.
};

// Reads the variables of these launchers (launcher_table.h); a process that none of them started
// is alone. The first one that is there counts:
//   trireme launch  TRIREME_WORKER, TRIREME_WORKERS, TRIREME_LOCAL_WORKER, TRIREME_LOCAL_WORKERS,
//                   TRIREME_RENDEZVOUS, TRIREME_GENERATION, TRIREME_ELASTIC=MIN:MAX with
//                   TRIREME_PROCESS, TRIREME_UNIT, TRIREME_LAUNCHER, TRIREME_LAUNCHER_GRACE_MS,
//                   TRIREME_STOP_GRACE_MS; in jobs with side tasks TRIREME_ROLE, TRIREME_INDEX
//   TFJob           TF_CONFIG (cluster_spec.h); for DMLC and srun see foreign_launchers.h
//   DMLC            DMLC_ROLE and its other variables
//   Kubernetes      JOB_COMPLETION_INDEX, RANK, WORLD_SIZE, MASTER_*, PET_* (kubernetes_job.h)
//   torchrun        RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR, MASTER_PORT,
//                   TORCHELASTIC_*
//   mpirun          OMPI_COMM_WORLD_* (OpenMPI)
//   srun            SLURM_STEP_*, SLURM_PROCID, of a step with several tasks
//   mpirun          PMI_RANK, PMI_SIZE and MPI_LOCAL* (MPICH, Intel MPI)
// TFJob, DMLC, Kubernetes and srun also read TRIREME_ELASTIC=MIN:N for the N workers of the
// cluster, and TRIREME_UNIT.
// Throws Error(invalid_argument) naming the variable that is missing, malformed or out of range,
// or a token file that others may read.
Identity resolve_identity(const Environment& environment);

// Returns TRIREME_JOB_TOKEN, or the content of TRIREME_JOB_TOKEN_FILE, without white space at its
// ends. `variable` may be another one, with its _FILE. Throws Error(invalid_argument) if the token
// is shorter than 16 bytes, or others may read the file.
std::optional<std::string> token_from(const Environment& environment,
                                      const std::string& variable = "TRIREME_JOB_TOKEN");

// Parses "MIN:MAX" workers. `where` names the option in messages. Throws Error(invalid_argument).
Elastic parse_elastic(const std::string& text, const std::string& where);

}  // namespace trireme::membership
