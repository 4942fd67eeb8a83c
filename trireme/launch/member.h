// A worker's side of the rendezvous: join, compare, key-value store, heartbeats, losses, goodbye.
#pragma once
#include <trireme/base/deadline.h>
#include <trireme/launch/membership.h>
#include <trireme/launch/phase_page.h>
#include <trireme/net/control.h>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace trireme::launch {

struct MemberOptions {
  Milliseconds timeout{60000};           // For every wait below.
  Milliseconds heartbeat_interval{200};  // A change of phase is told at the next beat.
  std::shared_ptr<PhasePage> phases;     // What beats tell; null: a page of its own.
  // Throws once nobody will answer at the coordinator's address any more: asked while it is called.
  std::function<void()> throw_if_hopeless = {};
};

struct Peer {
  int worker = 0;
  std::string host;     // Host name.
  std::string address;  // As seen by the coordinator, for carriers between hosts.
  int pid = 0;
};

// Calls may come from several threads at once. Every call below ends: in its result, in
// Error(timeout) naming what and whom it waited for, or in Error(peer_lost).
class Member {
 public:
  // COLLECTIVE. Connects to the coordinator and waits until all workers have joined with the same
  // Trireme version and the same number of replicas a worker. Throws Error(timeout) naming the
  // workers that are missing, Error(invalid_argument) naming both workers and the values that
  // differ.
  Member(const net::Endpoint& coordinator, const std::string& token, int worker, int workers,
         int generation, std::map<std::string, std::string> must_agree, MemberOptions options = {});
  ~Member();  // Does not say goodbye: an exit without leave() looks like a loss.

  const std::vector<Peer>& peers() const;  // By worker.

  // COLLECTIVE. Compares `facts` over all workers; `what` names the comparison ("configuration",
  // "model"). Throws Error(invalid_argument) on every worker if they differ: names two workers, the
  // first key that differs and both values.
  void agree(const std::string& what, const std::map<std::string, std::string>& facts);
  // COLLECTIVE, over the control connection: every worker has arrived.
  void barrier(const std::string& name);

  // A key-value store of the job (values are bytes). wait-style calls end in Error(timeout) or
  // Error(peer_lost).
  void set(const std::string& key, const std::string& value);
  std::string get(const std::string& key, Deadline deadline);  // Waits until it is set.
  std::optional<std::string> find(const std::string& key);     // Does not wait for it.
  int64_t add(const std::string& key,
              int64_t amount);  // Value as decimal text; starts at 0. Returns the sum.
  std::string compare_set(const std::string& key, const std::string& expected,
                          const std::string& desired);
  bool erase(const std::string& key);
  int64_t count_keys();

  PhasePage& phases();  // What this worker does.
  // The loss that ended this generation, once the coordinator has told it (or the coordinator
  // itself was lost). Cheap; any thread.
  std::optional<LostWorker> lost() const;
  bool is_lost() const;  // The same as a flag: one atomic load.
  // Throws Error(peer_lost) if lost(); the message names worker, host, phase and reason.
  void throw_if_lost() const;

  // Of elastic jobs.
  int generation() const;
  bool regroup_wanted()
      const;  // All shall arrive for the next generation after this step. Cheap; any thread.
  // The first one of this generation is committed; `facts` of it join the job's history.
  void tell_first_step(int64_t step, const Json& facts = Json::object());
  Json generations();  // The history (generations.h).

  Json times();  // Where all workers' time goes, and who straggles (Membership::times).

  double
  coordinator_cpu_seconds();  // CPU time of the process that runs the coordinator, for reports.
  // Says goodbye and closes. Further losses are not this worker's business.
  void leave();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace trireme::launch
