// All the workers of a job, from the view of one of them.
#pragma once
#include <trireme/base/deadline.h>
#include <trireme/base/environment.h>
#include <trireme/comm/group.h>
#include <trireme/launch/identity.h>
#include <trireme/launch/phase.h>
#include <trireme/plan/collective_table.h>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace trireme {

struct WorldOptions {
  std::string backend = "auto";     // Between processes: auto, shm, tcp, gloo, mpi, nccl. Between
                                    // threads always memory.
  std::string all_reduce = "auto";  // How sums are made where plans of ours are run
                                    // (docs/collectives.md): an algorithm, or by the table.
  std::string table;  // File that `trireme bench collectives --tune` wrote; empty: defaults. All
                      // work with rank 0's.
  std::string host;   // Workers share memory if they are on one machine and this is the same;
                      // default TRIREME_HOST.
  std::string interface;  // Name or address of the network interface to bind. Empty: the side that
                          // faces the rendezvous.
  Milliseconds timeout{60000};  // Of every wait.
  Milliseconds heartbeat_interval{200};
  // Used where this process runs the coordinator.
  Milliseconds heartbeat_timeout{10000};  // A silent worker is lost after this.
  double straggler_factor = 1.5;          // launch/stragglers.h
};

// Passed by reference, never global. Movable. Threads may share it after connect(); connect,
// agree, groups and leave belong to one.
class World {
 public:
  // Who am I: `trireme launch`, torchrun, mpirun, or alone. Connects nothing yet. Throws
  // Error(invalid_argument) for an environment that contradicts itself or an option out of range.
  static World join(WorldOptions options = {});
  static World join(WorldOptions options, const Environment& environment);
  ~World();  // Says no goodbye: an exit without leave() looks like a loss to the others.
  World(World&&) noexcept;
  World& operator=(World&&) noexcept;

  int worker() const;   // This process.
  int workers() const;  // All processes.
  // With one replica a worker (DataParallel's way) workers are ranks.
  int rank() const { return worker(); }
  int size() const { return workers(); }
  const launch::Identity& identity() const;
  const WorldOptions& options() const;

  // COLLECTIVE, once (later calls return at once). Meets the other workers; compares the Trireme
  // version and `replicas` a worker. Engines call it. Throws Error(timeout | invalid_argument |
  // peer_lost), naming the worker.
  void connect(int replicas = 1);
  // COLLECTIVE. Throws Error(invalid_argument) on every worker, naming two workers and the first
  // difference, unless `facts` are equal everywhere.
  void agree(const std::string& what, const std::map<std::string, std::string>& facts);
  // Before the first regroup(): what this process must have in common with the other members of an
  // elastic job. A newcomer that differs is turned away, and the job goes on.
  void set_terms(std::map<std::string, std::string> facts);
  // Elastic jobs (`trireme train --elastic MIN:MAX`): the number of workers changes while they
  // run.
  bool is_elastic() const;
  // The members of this generation shall meet again after this step, since somebody joins or the
  // job shrinks. Cheap; any thread.
  bool regroup_wanted() const;
  bool lost_a_worker() const;  // This generation is over. Cheap; any thread.
  // COLLECTIVE over those who are left and those who join. Leaves the generation, with all groups
  // made in it, and connects in the next one: worker(), workers() and ranks are others then, and
  // worker 0 has the newest state. `step`: committed steps that this process has the state of, -1:
  // none. `reason`: the error for which it gave its step up, or empty. False: the job goes on
  // without this process. Throws Error(peer_lost) when no generation can form any more,
  // Error(timeout), Error(invalid_argument) naming the first difference from the job's terms.
  bool regroup(int64_t step, const std::string& reason);
  int64_t step_of_generation() const;  // Committed steps that worker 0 came with.
  // Each worker: the first one of this generation is committed. Worker 0 tells; `facts` join the
  // generation's entry.
  void tell_first_step(int64_t step, const Json& facts = Json::object());
  Json generations();  // What was, one entry a generation (launch/generations.h); of a job that is
                       // not elastic: empty.

  // After connect(), which brings rank 0's table: groups made from now on choose their plans by
  // this one; the same on every worker.
  void set_table(plan::CollectiveTable table);
  // COLLECTIVE. New groups over all replicas of all workers, one for each of this worker's
  // `replicas` (connects if that was not done). Each call makes groups of their own: engines do
  // not share any.
  std::vector<std::shared_ptr<Group>> make_groups(int replicas = 1);

  // What this process does, for heartbeats and its launcher. Cheap. The calling thread speaks for
  // the process from now on: its collectives are told too.
  void set_phase(Phase phase, int64_t step = -1);
  // Its launcher knows that this process writes the checkpoint of this step as long as the result
  // lives: it says so where that is cut off. Any thread.
  std::shared_ptr<void> mark_save(int64_t step);
  // Where the time of all workers' steps goes, and who makes the others wait: {"phases": [...],
  // "stragglers": [...]} (docs/report.md).
  Json times();
  double coordinator_cpu_seconds();  // Of the launcher, if it runs the coordinator; for reports.
  // Says goodbye. Nothing after it communicates.
  void leave();

 private:
  struct Impl;
  explicit World(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace trireme
