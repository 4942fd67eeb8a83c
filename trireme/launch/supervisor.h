// Starts the workers of one host, watches them, and ends the job as one: the work of
// `trireme launch` and `trireme train --workers N`.
#pragma once
#include <trireme/base/deadline.h>
#include <trireme/launch/patience.h>
#include <trireme/membership/identity.h>
#include <trireme/membership/notices.h>
#include <trireme/membership/roles.h>
#include <trireme/monitor/events.h>
#include <trireme/net/etcd_url.h>
#include <trireme/net/message.h>
#include <trireme/watch/stragglers.h>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace trireme::launch {

struct SupervisorOptions : Patience {
  int workers = 1;  // The number of workers in the whole job.
  int nodes = 1;    // The number of launchers. Each gets an even part of the workers, in order.
  int node = 0;     // The number of this launcher. Node 0's launcher runs the coordinator.
  // The address at which the coordinator listens (node 0) or is found (other nodes need a port).
  net::Endpoint rendezvous{"127.0.0.1", 0};
  // If set, the coordinator is found through etcd, and another one may take over from it
  // (membership/claim.h). It listens on any free port of rendezvous.host; if that is empty, of the
  // address by which node 0 reaches etcd.
  std::optional<net::EtcdUrl> etcd;
  std::vector<std::string> command;  // The programme and its arguments.
  bool is_own_programme = false;     // The user's own, whose calls may be wrong.
  std::vector<std::pair<std::string, std::string>> environment;  // Added for each worker.
  // The side tasks, such as parameter servers and an evaluator. Each node gets an even part of
  // each role, in order. They end once all workers have ended.
  membership::Roles roles;
  bool has_chief = false;  // Worker 0 has the role chief (TRIREME_ROLE). It is one of the workers.
  // If set, workers that die are replaced while the others continue, and the number of workers on
  // node 0 may change (docs/recovery.md).
  std::optional<membership::Elastic> elastic;
  // OMP_NUM_THREADS and MKL_NUM_THREADS, unless the user has set them. 0: cores / local workers,
  // at least 1.
  int threads_per_worker = 0;
  bool prefix_output = true;  // Print "[2] " before each line of worker 2.
  Milliseconds join_timeout{60000};
  Milliseconds heartbeat_timeout{10000};
  watch::StragglerOptions straggler;
  // Called for each complete line of a worker's standard output. If it returns true, the line is
  // not printed.
  std::function<bool(int worker, const std::string& line)> on_line;
  // Called on node 0 for each notice of a worker that was lost, hangs or is slow
  // (membership/notices.h). The printed line is "text" in the record. If it throws, the job
  // continues.
  std::function<void(const Json& record)> on_notice;
  // Called on node 0 for each event that a worker told (membership/event_queue.h). If it throws,
  // the job continues.
  std::function<void(const monitor::Told& told)> on_event;
};

// Runs the job to its end and returns its exit code (base/error.h):
//   0    if all workers ended with 0
//   1    after a crash signal (SEGV, ABRT, BUS, FPE, ILL) before the first step
//   1, 2 if a worker ended with that code
//   2    if the programme cannot be started; standard error names it. An elastic job whose members
//        have begun tries again, and then saves and ends with 138
//   138  if a worker was killed or its host was lost
// A side task that fails counts as a worker, unless its role is told or replaced
// (membership/roles.h).
//   143  after SIGINT or SIGTERM. It is passed on once, as SIGTERM; a second one kills
// Prints one verdict naming the first worker that failed, its signal or code, and its last phase.
// On return no child, descendant group, socket or pipe of the job is left. If the launcher itself
// is killed, the kernel kills its children (PR_SET_PDEATHSIG), unless the job is elastic
// (watch/orphan_watch.h). Takes over SIGINT, SIGTERM, SIGHUP and SIGCHLD of the process while it
// runs, and ends every child that appears meanwhile: make one call at a time. Throws
// Error(invalid_argument) naming a wrong option or a living job of the same name in etcd,
// Error(timeout) if etcd has not answered for join_timeout, Error(io) if the rendezvous address
// cannot be listened on.
int supervise(const SupervisorOptions& options);

}  // namespace trireme::launch
