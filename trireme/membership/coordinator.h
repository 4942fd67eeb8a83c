// The rendezvous of one job: a ControlServer, the membership rules, and a small key-value store.
// It runs in the launcher, or in worker 0 under torchrun.
#pragma once
#include <trireme/base/deadline.h>
#include <trireme/membership/event_queue.h>
#include <trireme/membership/generations.h>
#include <trireme/membership/lookup.h>
#include <trireme/membership/membership.h>
#include <trireme/net/control.h>
#include <trireme/net/etcd_url.h>
#include <functional>
#include <memory>
#include <optional>
#include <string>

namespace trireme::membership {

// Returns what a process is doing as its launcher sees it (watch/phase_page.h), also after its
// end; empty if unknown. `process` is the number that its launcher gave it; in a job that is not
// elastic, the worker's number. Any thread.
using LookAt = std::function<std::optional<PhaseNow>(int64_t process)>;

class Coordinator {
 public:
  // Starts listening. With `elastic`, each generation numbers its workers anew. Without `look`,
  // only heartbeats tell what workers are doing. `roles` are those of the side tasks. Throws
  // Error(io) naming the address if it cannot listen.
  Coordinator(const net::Endpoint& listen, std::string token, MembershipOptions options,
              std::optional<RosterOptions> elastic = {}, LookAt look = {},
              const Roles& roles = {});
  // Stands by in a worker of an elastic job and does not know the job's rules yet. It takes over
  // when processes that lost their coordinator come and tell their last generation (former.h).
  // With `etcd`, only the holder of the job's name there may coordinate: if another process has
  // the name, this coordinator closes all connections and stands by again. Throws like the first
  // constructor.
  Coordinator(const net::Endpoint& listen, std::string token,
              std::optional<net::EtcdUrl> etcd = {});
  ~Coordinator();
  net::Endpoint endpoint() const;

  // Publishes its address under the job's name in etcd and keeps it there (claim.h). Returns once
  // it is published. An elastic job also needs RosterOptions::by_claim. Throws
  // Error(invalid_argument) if another job of that name is running, else like
  // Claim::wait_until_held().
  void publish(const net::EtcdUrl& etcd, Milliseconds patience = Milliseconds(10000),
               const StopAsked& stop_asked = {});
  // At the end of the job, gives the name back. If that fails, the name stays until its lease runs
  // out.
  void withdraw(Deadline deadline);
  // True if it was silent for so long that another coordinator took the name. Then it closes all
  // connections.
  bool was_superseded() const;

  // The facts about a worker that the launcher's verdict needs. Any thread.
  PhaseAt last_phase(int worker) const;
  bool said_goodbye(int worker) const;
  // True if a worker's heartbeat told of the second step or a later one.
  bool any_step_finished() const;
  // The reason why the job is over, if it is not elastic and is over by a failure.
  std::optional<Failure> ended() const;
  // The first lost worker that the coordinator saw, if any.
  std::optional<LostWorker> first_lost() const;
  // The launcher saw the worker's process end, perhaps before its connection closed. Tells all
  // other workers now.
  void report_lost(int worker, const std::string& reason);
  // Returns the stalls and stragglers that were found since the last call.
  std::vector<Notice> take_notices();
  // Returns the events that workers told since the last call. Any thread.
  EventBatch take_events();
  // Waits until every worker that joined has left or was lost; after failure(), until it has
  // closed its connection. Returns false at the deadline. A worker that hosts the coordinator
  // calls this after its own Member is gone, on success and on failure: else the other workers
  // would not get their last messages.
  bool wait_until_all_left(Deadline deadline) const;

  // For side tasks, by their numbers (roles.h).
  void report_lost_task(int number, const std::string& reason);
  // Returns the side tasks that were lost since the last call, such as those that fell silent.
  std::vector<int> take_lost_tasks();
  PhaseAt last_phase_of_task(int number) const;
  // The process of the task has joined, and has neither left nor been lost.
  bool task_is_present(int number) const;
  bool task_has_joined(int number, int pid) const;  // This process of the task has joined.
  // Whether the workers of all other launchers have ended, as far as is known here: none is a
  // member, and each launcher that watches for the end has said so.
  bool other_workers_ended() const;
  void finish_tasks();  // Tells the side tasks and the other launchers that the job ends.

  // For elastic jobs, which name processes by the numbers that their launcher gave them
  // (roster.h).
  void report_lost_process(int64_t process, const std::string& reason);
  // The place of the process, or its last place if it was lost. Empty if it never was a member.
  std::optional<PhaseAt> last_phase_of_process(int64_t process) const;
  // The process as a lost member; empty if it was not a member when it was lost.
  std::optional<LostMember> lost_member(int64_t process) const;
  bool takes_part(int64_t process) const;     // It works, or waits for the next generation.
  bool was_dismissed(int64_t process) const;  // The job continues without it, with fewer workers.
  // Admits no newcomer from now on; any number of members may continue. Does nothing if it stands
  // by and has not taken over.
  void finish();
  // Whether no newcomer is admitted any more, because a member said goodbye or finish() was
  // called.
  bool is_finishing() const;
  // Whether a member that said goodbye had been asked to stop.
  bool members_were_stopped() const;
  int target() const;   // The number of workers wanted (`trireme scale`).
  int resizes() const;  // How often `trireme scale` has set it.
  // Returns the processes lost since the last call. Returns none while another coordinator may be
  // at work: processes that are silent here may have gone to it.
  std::vector<LostProcess> take_lost();
  // The reason why no generation can form any more; empty if one may.
  std::optional<Failure> failure() const;
  bool has_taken_over() const;  // Whether it stood by, and now coordinates the job.

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace trireme::membership
