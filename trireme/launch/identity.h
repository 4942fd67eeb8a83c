// Who am I? One resolver for every launcher. Reads the environment; connects nothing.
#pragma once
#include <trireme/base/deadline.h>
#include <trireme/base/environment.h>
#include <trireme/net/etcd_url.h>
#include <trireme/net/message.h>
#include <optional>
#include <string>

namespace trireme::launch {

enum class Launcher { alone, trireme, torchrun, mpirun };

// How many workers a job may have while it runs, and which process of it this is (launch/roster.h).
struct Elastic {
  int minimum = 1, maximum = 1;
  int64_t process = 0;
  int launcher = 0;  // Process id of who started it; it may go on without (launch/orphan_watch.h).
                     // 0: not told.
  std::optional<Milliseconds> launcher_grace;  // For so long; empty: to its end.
  Milliseconds stop_grace{30000};              // Then it has so long to save.
};

struct Identity {
  Launcher launcher = Launcher::alone;
  int worker = 0;  // This process, 0..workers-1.
  int workers = 1;
  int local_worker = 0;  // Among the workers of this host.
  int local_workers = 1;
  int generation = 0;
  std::optional<net::Endpoint>
      rendezvous;  // Where the coordinator is; empty when alone, or when it is published (below).
  bool hosts_coordinator =
      false;  // True: this process must run the coordinator (rank 0 of torchrun and mpirun).
  // torchrun: the coordinator's address is published through this key-value store (torchrun's agent
  // or rank 0 holds the port).
  std::optional<net::Endpoint> agent_store;
  std::optional<net::EtcdUrl> etcd;  // The coordinator's address is published there, and changes
                                     // when another one takes over.
  std::optional<Elastic> elastic;    // Then worker and workers are told by each generation.
  std::string job_id;  // Names the token file by which the workers of one host meet where no
                       // rendezvous is given.
  std::optional<std::string> token;  // TRIREME_JOB_TOKEN, or the content of TRIREME_JOB_TOKEN_FILE.
  std::string describe() const;      // For `doctor` and logs; never shows the token.
};

// Understands `trireme launch` (TRIREME_WORKER, TRIREME_WORKERS, TRIREME_LOCAL_WORKER,
// TRIREME_LOCAL_WORKERS, TRIREME_RENDEZVOUS, TRIREME_GENERATION, TRIREME_ELASTIC=MIN:MAX with
// TRIREME_PROCESS, TRIREME_LAUNCHER, TRIREME_LAUNCHER_GRACE_MS, TRIREME_STOP_GRACE_MS), torchrun
// (RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR, MASTER_PORT, TORCHELASTIC_*),
// mpirun (OpenMPI's OMPI_COMM_WORLD_*, MPICH's PMI_RANK, PMI_SIZE and MPI_LOCAL*), or none: alone.
// Throws Error(invalid_argument) naming the variable that is missing, malformed or out of range, or
// a token file that others may read.
Identity resolve_identity(const Environment& environment);

// TRIREME_JOB_TOKEN, or the content of TRIREME_JOB_TOKEN_FILE. Throws Error(invalid_argument) if it
// is shorter than 16 bytes, or others may read the file.
std::optional<std::string> token_from(const Environment& environment);

// "MIN:MAX" workers. `where` names the option in messages. Throws Error(invalid_argument).
Elastic parse_elastic(const std::string& text, const std::string& where);

}  // namespace trireme::launch
