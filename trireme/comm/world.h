// All the workers of a job, from the view of one of them.
#pragma once
#include <trireme/base/environment.h>
#include <trireme/comm/group.h>
#include <trireme/comm/mesh_rank.h>
#include <trireme/comm/own_loop.h>
#include <trireme/comm/world_options.h>
#include <trireme/membership/identity.h>
#include <trireme/membership/task_view.h>
#include <trireme/monitor/events.h>
#include <trireme/plan/collective_table.h>
#include <trireme/plan/mesh.h>
#include <trireme/watch/phase.h>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace trireme {

// A World is passed by reference, and is never global. It can be moved. Several threads may use it
// after connect(); one of them calls connect, agree, make_groups and leave.
class World {
 public:
  // Finds this process's place in the job from its environment (`trireme launch`, torchrun,
  // mpirun, or alone). Connects nothing yet. From then on a programme that does not catch an Error
  // prints it and ends with its exit code (exit_code_of). If it has set no seed, all ranks draw
  // the same numbers from LibTorch's default generator until an engine is made. Throws
  // Error(invalid_argument) for an environment that contradicts itself or an option out of range.
  static World join(WorldOptions options = {});
  static World join(WorldOptions options, const Environment& environment);
  // Calls leave() if the loop has had a Distributed, unless an exception passes or a worker was
  // lost. If the ranks' parameters differ, it prints the error and ends the process with its exit
  // code. Other programmes say no goodbye without leave(), and the others take them for lost.
  ~World();
  World(World&& other) noexcept;
  World& operator=(World&& other) noexcept;

  int worker() const;   // This process; -1: it is a side task (membership/roles.h).
  int workers() const;  // All workers. In a side task: those with which the job began.
  // DataParallel has one replica for each worker, so workers are ranks.
  int rank() const { return worker(); }
  int size() const { return workers(); }
  const membership::Identity& identity() const;
  const WorldOptions& options() const;

  // For jobs with several roles (`trireme launch --ps M`). A side task connects like a worker, has
  // no rank and makes no groups.
  const membership::Task& task() const;
  // The tasks of a role that are there now, by index, with their addresses. Throws
  // Error(not_found) if the job has no such role.
  std::vector<membership::TaskPeer> peers(const std::string& role) const;
  // Waits until all tasks of the role are there. Throws Error(timeout) naming the missing ones,
  // Error(peer_lost).
  std::vector<membership::TaskPeer> wait_for(const std::string& role, Deadline deadline) const;
  // The side tasks that were lost, the oldest first. Any thread.
  std::vector<membership::LostTask> lost_tasks() const;
  // Whether all workers have ended, so that this side task is to end too. Throws Error(peer_lost)
  // in a side task that has lost the coordinator: it is lost for the others. Cheap; any thread.
  bool finish_wanted() const;
  // The key-value store of the job. The keys that a side task sets stay until it is lost; the keys
  // that workers set last as long as the generation. get_value() waits until the key is set.
  // Throws Error(timeout), Error(peer_lost).
  void set_value(const std::string& key, const std::string& value);
  std::string get_value(const std::string& key, Deadline deadline);
  // Asks the coordinator and does not wait for the key; empty if it is not set.
  std::optional<std::string> find_value(const std::string& key);

  // For channels between the tasks of the job, once connected: the secret that they prove to each
  // other, and the address of this process that they reach.
  const std::string& token() const;
  std::string own_address() const;

  // COLLECTIVE. Meets the other workers, and compares the version of Trireme and each worker's
  // `replicas`. Engines call it; calls after the first return at once. Throws Error(timeout |
  // invalid_argument | peer_lost), naming the worker.
  void connect(int replicas = 1);
  // COLLECTIVE. Throws Error(invalid_argument) on every worker, naming two workers and the first
  // difference, unless `facts` are equal everywhere.
  void agree(const std::string& what, const std::map<std::string, std::string>& facts);
  // Sets the facts that this process must have in common with others: a worker with all workers, a
  // side task with its role, and both with the roles that must agree on them (docs/roles.md). It
  // is called before connect(); a second call adds facts. In an elastic job a newcomer that
  // differs is turned away, and the job continues.
  void set_terms(std::map<std::string, std::string> facts);
  // Whether the number of workers may change while the job runs (`trireme train --elastic
  // MIN:MAX`).
  bool is_elastic() const;
  // Whether the members of this generation are to meet again after this step, because a worker
  // joins or the job becomes smaller. Cheap; any thread.
  bool regroup_wanted() const;
  bool lost_a_worker() const;  // Whether this generation has lost a worker. Cheap; any thread.
  // COLLECTIVE over the workers that are left and those that join. Leaves the generation, with all
  // groups made in it, and connects in the next one. worker(), workers() and ranks change then,
  // and worker 0 has the newest state, unless workers come in units. `step` is the number of
  // committed steps in the state of this process; -1: it has no state. `reason` is the error for
  // which it gave its step up, or empty. Returns false if the job continues without this process.
  // Throws Error(peer_lost) if no generation can form any more, Error(timeout), and
  // Error(invalid_argument) naming the first difference from the job's terms.
  bool regroup(int64_t step, const std::string& reason);
  // The number of committed steps of the newest state that came to this generation. Worker 0 has
  // it, unless workers come in units.
  int64_t step_of_generation() const;
  // With units, the number of committed steps that each worker came with, by number; -1: it has no
  // state for its position. Empty without units.
  std::vector<int64_t> steps_of_generation() const;
  // Each worker calls it when the first step of this generation is committed. Worker 0 tells the
  // coordinator, which adds `facts` to the generation's entry.
  void tell_first_step(int64_t step, const Json& facts = Json::object());
  // Tells the launcher of an event of a replica, with one of the next heartbeats. Cheap, never
  // waits and may drop it (membership/event_queue.h).
  void tell_event(monitor::Told told);
  // Sends the events that wait for a heartbeat, before an error ends the process.
  void send_events();
  // The history of the job, with one entry for each generation (membership/generations.h). It is
  // empty if the job is not elastic.
  Json generations();

  // Replaces rank 0's table, which connect() brings: groups made from now on choose their plans by
  // this one. It must be the same on every worker.
  void set_table(plan::CollectiveTable table);
  // COLLECTIVE. Makes new groups over all replicas of all workers, one for each of this worker's
  // `replicas`, and connects first if necessary. Each call makes other groups, so that each engine
  // has its own.
  std::vector<std::shared_ptr<Group>> make_groups(int replicas = 1);
  // COLLECTIVE over all workers, also those outside the group. Makes a group of some ranks, in
  // which rank i is rank ranks[i] of the world. Returns the group of each replica of this worker;
  // null for one that is not in the group. `replicas`: those of a worker; 0: as many as the world
  // is connected with, or 1. Several threads may use several groups at once. Throws
  // Error(invalid_argument) before anything connects if a rank is outside the world or listed
  // twice, and on every worker if they list different ranks.
  std::vector<std::shared_ptr<Group>> make_group(const std::vector<int>& ranks, int replicas = 0);
  // COLLECTIVE. Makes the groups along each axis of a mesh whose ranks are those of the world.
  // Returns the place of each replica of this worker. Throws Error(invalid_argument) before
  // anything connects if the axes do not multiply to the ranks of the world.
  std::vector<MeshRank> mesh(const plan::Mesh& mesh, int replicas = 0);

  // Tells heartbeats and the launcher what this process does. Cheap. From now on the calling
  // thread speaks for the process: its collectives are told too.
  void set_phase(Phase phase, int64_t step = -1);
  // Tells the launcher that this process writes the checkpoint of this step, as long as the result
  // lives. The launcher names a save that is cut off. Any thread.
  std::shared_ptr<void> mark_save(int64_t step);
  // Returns how the steps of all workers spend their time, and which workers the others wait for:
  // {"phases": [...], "stragglers": [...]} (docs/report.md).
  Json times();
  // The CPU time of the launcher, if it runs the coordinator; for reports.
  double coordinator_cpu_seconds();
  // Says goodbye. No call after it communicates. COLLECTIVE in a loop with Distributed or
  // DataParallel, whose parameters the ranks compare before: Error(invalid_argument) names
  // parameters that differ, or a loop that has trained them past a DataParallel.
  void leave();

  // For loops that use Distributed (parallel/distributed.h). Returns the number of samples that
  // this rank takes of a global batch of `batch`, at least 1, and counts this rank's gradients by
  // it from now on, unless gradients are switched off (torch::NoGradGuard), as in an evaluation.
  // The numbers of the ranks differ by at most one. Throws Error(invalid_argument) if the batch
  // has fewer samples than there are ranks.
  int64_t share(int64_t batch);
  // The same for losses that are no plain mean over the samples: the gradients of all ranks are
  // added up with weights, and this rank's is own / total until it has another batch. Call it
  // before the forward pass. With a sum over the samples it is weigh(1, 1); with weights of
  // classes, `own` is the sum of those of this rank's targets. Without `total` it is COLLECTIVE,
  // and the total is the sum of `own` over all ranks: not in a loop with join(), whose ranks
  // without a batch would not come. Throws Error(invalid_argument) for numbers that are negative
  // and for a total that is not above 0, and Error(unsupported) with OwnStepsOptions::joins.
  void weigh(double own);
  void weigh(double own, double total);
  using OwnLoop = trireme::OwnLoop;
  const std::shared_ptr<OwnLoop>& own_loop() const;  // The same after the World was moved.
  // COLLECTIVE at the first call in each generation. A group of all ranks for the loop's own
  // operations.
  const std::shared_ptr<Group>& loop_group();

 private:
  struct Impl;
  void require_worker(const char* what) const;
  void compare_at_the_end(const std::map<std::string, std::string>& facts);
  explicit World(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace trireme
