// The rendezvous of one job: a ControlServer, the membership rules, and a small key-value store.
// Embedded in the launcher, or in worker 0 under torchrun.
#pragma once
#include <trireme/base/deadline.h>
#include <trireme/launch/generations.h>
#include <trireme/launch/lookup.h>
#include <trireme/launch/membership.h>
#include <trireme/net/control.h>
#include <trireme/net/etcd_url.h>
#include <functional>
#include <memory>
#include <optional>
#include <string>

namespace trireme::launch {

// What a process does, as who started it sees it now (phase_page.h), also after its end: by the
// number that its supervisor gave it, which is the worker's where the job is not elastic. Empty:
// not known. Any thread.
using LookAt = std::function<std::optional<PhaseNow>(int64_t process)>;

class Coordinator {
 public:
  // Starts listening. With `elastic` workers are numbered anew in each generation. Without `look`,
  // heartbeats alone tell what workers do. Throws Error(io) naming the address if it cannot.
  Coordinator(const net::Endpoint& listen, std::string token, MembershipOptions options,
              std::optional<RosterOptions> elastic = {}, LookAt look = {});
  // Stands by in a worker of an elastic job, with the job's rules unknown: takes over once
  // processes come that tell it of the generation they were in (former.h), as they do when they
  // have lost their coordinator. With `etcd`, who holds the job's name there may go on: where
  // another one has it, this one turns everybody away and stands by again. Throws likewise.
  Coordinator(const net::Endpoint& listen, std::string token,
              std::optional<net::EtcdUrl> etcd = {});
  ~Coordinator();
  net::Endpoint endpoint() const;

  // Publishes where it listens under the job's name in etcd (claim.h), and keeps it there. Returns
  // once it is. Of an elastic job, with RosterOptions::by_claim. Throws Error(invalid_argument) if
  // a job of that name lives, else as Claim::wait_until_held() does.
  void publish(const net::EtcdUrl& etcd, Milliseconds patience = Milliseconds(10000),
               const StopAsked& stop_asked = {});
  void withdraw(Deadline deadline);  // At the end of the job: gives the name back. What fails is
                                     // left to its lease.
  bool was_superseded()
      const;  // It was silent for so long that another one took the name, and turns everybody away.

  // What is known of a worker; for the supervisor's verdict. Any thread.
  PhaseAt last_phase(int worker) const;
  bool said_goodbye(int worker) const;
  bool any_step_finished()
      const;  // Some worker's heartbeat told of the second step or a later one.
  // The first lost worker that the coordinator saw, if any.
  std::optional<LostWorker> first_lost() const;
  // The supervisor saw the worker's process end before the connection did: tells all others now.
  void report_lost(int worker, const std::string& reason);
  std::vector<Notice> take_notices();  // Stalls and stragglers that were found since the last call.
  // Until every worker that joined has left or was lost; false at the deadline. A worker that hosts
  // the coordinator calls this after its own Member is gone, on success and on failure: else the
  // others would miss what they are being told.
  bool wait_until_all_left(Deadline deadline) const;

  // Of elastic jobs, where processes are told apart by the numbers that their supervisor gave them
  // (launch/roster.h).
  void report_lost_process(int64_t process, const std::string& reason);
  // Where it is or was when it was lost; empty if it never was a member.
  std::optional<PhaseAt> last_phase_of_process(int64_t process) const;
  std::optional<LostMember> lost_member(int64_t process) const;  // If it was one when it was lost.
  bool takes_part(int64_t process) const;     // It works, or waits for the next generation.
  bool was_dismissed(int64_t process) const;  // The job goes on without it, with fewer workers.
  void finish();       // Nobody is taken in any more, and any number of members goes on.
  int target() const;  // Workers wanted (`trireme scale`).
  // Since the last call. Not while another coordinator may be at work, which processes that are
  // silent here may have gone to.
  std::vector<LostProcess> take_lost();
  std::optional<Failure> failure() const;  // Why no generation can form any more; empty: one may.
  bool has_taken_over() const;             // It stood by.

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace trireme::launch
