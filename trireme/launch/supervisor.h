// Starts the workers of one host, watches them, and ends the job as one: `trireme launch`, `trireme
// train --workers N`.
#pragma once
#include <trireme/base/deadline.h>
#include <trireme/launch/identity.h>
#include <trireme/launch/notices.h>
#include <trireme/launch/stragglers.h>
#include <trireme/net/etcd_url.h>
#include <trireme/net/message.h>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace trireme::launch {

struct SupervisorOptions {
  int workers = 1;  // In the whole job.
  int nodes = 1;    // Launchers in the job; workers are dealt out evenly, in order.
  int node = 0;     // This one. Node 0's launcher runs the coordinator.
  net::Endpoint rendezvous{
      "127.0.0.1", 0};  // Where the coordinator listens (node 0) or is found (others need a port).
  // The coordinator is found through etcd instead: it listens on any free port of rendezvous.host
  // (empty: the address by which node 0 reaches etcd), and another one may take over from it
  // (claim.h).
  std::optional<net::EtcdUrl> etcd;
  std::vector<std::string> command;                              // Program and arguments.
  std::vector<std::pair<std::string, std::string>> environment;  // Added for each worker.
  // Workers that die are replaced while the others go on, and their number may change, on node 0
  // (docs/recovery.md).
  std::optional<Elastic> elastic;
  int threads_per_worker = 0;  // OMP_NUM_THREADS and MKL_NUM_THREADS; 0: cores / local workers, at
                               // least 1. Variables set by the user win.
  bool prefix_output = true;   // "[2] " before each line of worker 2.
  // From passing SIGTERM on until SIGKILL. After a loss, a worker that writes a checkpoint has as
  // long to finish it.
  Milliseconds stop_grace{30000};
  // Of an elastic job on one node: for so long its workers go on without the launcher; then they
  // save and end.
  Milliseconds launcher_grace{60000};
  Milliseconds loss_grace{5000};  // From a worker's loss until the others are killed.
  Milliseconds join_timeout{60000};
  Milliseconds heartbeat_timeout{10000};
  Milliseconds stall_timeout{10000};  // A worker that the others wait for so long is named.
  StragglerOptions straggler;
  // Called for each complete line of a worker's standard output; return true to swallow it (the
  // progress display does).
  std::function<bool(int worker, const std::string& line)> on_line;
  // What is said of a worker that died, hangs or is slow (notices.h), with the line's own words as
  // "text"; on node 0.
  std::function<void(const Json& record)> on_notice;
};

// Runs the job to its end and returns its exit code (base/error.h): 0 if all ended with 0; a
// worker's own 1 or 2; 143 after SIGINT or SIGTERM (passed on once, as SIGTERM; a second one
// kills); 138 if a worker was killed or its host lost; 1 for a crash signal (SEGV, ABRT, BUS, FPE,
// ILL) before the first step. Prints one verdict naming the first worker that failed, its signal or
// code, and its last phase. On return no child, descendant group, socket or pipe of the job is
// left; if the launcher itself is killed, the kernel kills its children (PR_SET_PDEATHSIG), unless
// the job is elastic (orphan_watch.h). Takes over SIGINT, SIGTERM, SIGHUP and SIGCHLD of the
// process while it runs, and ends every child that appears meanwhile: one call at a time. Throws
// Error(invalid_argument) naming a wrong option or a job of the same name in etcd that lives,
// Error(timeout) if etcd has not answered for join_timeout, Error(io) if the rendezvous address
// cannot be listened on. A program that cannot be started is named on standard error, and 2 is
// returned.
int supervise(const SupervisorOptions& options);

}  // namespace trireme::launch
