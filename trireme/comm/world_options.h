// The options of a World, and what they mean for a process with its identity; no torch.
#pragma once
#include <trireme/base/deadline.h>
#include <trireme/config/rows.h>
#include <trireme/membership/identity.h>
#include <trireme/plan/collective_table.h>
#include <string>

namespace trireme {

struct WorldOptions {
  // The backend between processes: auto, shm, tcp, gloo, mpi or nccl. Threads always use memory.
  std::string backend = "auto";
  // The algorithm of sums in Trireme's own plans (docs/collectives.md); auto: by the table.
  std::string all_reduce = "auto";
  // The file that `trireme bench collectives --tune` wrote; empty: defaults. All use rank 0's.
  std::string table;
  // Workers on one machine that have the same name here use shared memory; default TRIREME_HOST.
  std::string host;
  // The name or address of the network interface to bind; empty: the one towards the rendezvous.
  std::string interface;
  Milliseconds timeout{60000};  // The limit of every wait.
  Milliseconds heartbeat_interval{200};
  // The following two matter if this process runs the coordinator.
  // A worker that is silent for this long is lost; 0: 10 s.
  Milliseconds heartbeat_timeout{0};
  double straggler_factor = 1.5;  // watch/stragglers.h
};
config::Rows rows_of(const WorldOptions*);
// Throws Error(invalid_argument) if two of the options do not fit each other.
void check(const WorldOptions& options);

namespace comm {

// Throws Error(invalid_argument | unsupported) naming the option that does not fit.
void check(const WorldOptions& options, const membership::Identity& identity);
// The backend between processes that share no memory: tcp, gloo, mpi or nccl.
std::string carrier_between_hosts(const std::string& backend,
                                  const membership::Identity& identity);
// The table of this worker's file, if it has one. `all_reduce` by name takes precedence.
plan::CollectiveTable table_of(const WorldOptions& options);
void choose_by_name(plan::CollectiveTable& table, const std::string& all_reduce);

}  // namespace comm
}  // namespace trireme
