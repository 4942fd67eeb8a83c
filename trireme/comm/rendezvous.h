// This process at the rendezvous of its job. It finds the coordinator, or hosts it, joins as a
// member and, in an elastic job, comes again for each generation. World makes groups of the
// workers that met here. No torch.
#pragma once
#include <trireme/base/environment.h>
#include <trireme/comm/host/host_map.h>
#include <trireme/comm/world_options.h>
#include <trireme/membership/arrival.h>
#include <trireme/membership/coordinator.h>
#include <trireme/membership/identity.h>
#include <trireme/membership/lookup.h>
#include <trireme/membership/member.h>
#include <trireme/membership/token_file.h>
#include <trireme/watch/orphan_watch.h>
#include <trireme/watch/phase_page.h>
#include <chrono>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace trireme::comm {

// Several threads may read it after connect(). One of them calls connect, arrive, settle and
// leave.
class Rendezvous {
 public:
  // Watches the launcher of an elastic job from now on. Connects nothing yet.
  Rendezvous(membership::Identity identity, Environment environment, WorldOptions options);
  // Says no goodbye. A process that hosts the coordinator stays until the others have heard of its
  // end, also after a failure.
  ~Rendezvous();
  Rendezvous(const Rendezvous&) = delete;

  const membership::Identity& identity() const { return identity_; }
  const WorldOptions& options() const { return options_; }
  const std::shared_ptr<watch::PhasePage>& phases() const { return phases_; }
  // Empty while unconnected, and when alone.
  const std::shared_ptr<membership::Member>& member() const { return member_; }
  const std::string& token() const { return token_; }  // The job's. Empty before the connection.

  // COLLECTIVE. Joins this generation as a member, unless the process is alone. Throws
  // Error(timeout | invalid_argument | peer_lost), naming the worker.
  void connect(int replicas);
  // Joins as a side task (membership/roles.h).
  void connect_side_task();
  // The address by which the other processes reach this one: that of the named interface, or the
  // one towards the rendezvous.
  std::string bind_address() const;
  // COLLECTIVE over the members of this generation at the first call. The workers by host.
  const HostMap& places();

  // For elastic jobs. World has the contracts of these.
  void set_terms(std::map<std::string, std::string> facts);
  bool has_a_place() const { return has_a_place_; }  // In a generation, now or before.
  // Leaves this generation and waits for a place in the next one, which identity() then names.
  // Returns false if the job continues without this process.
  bool arrive(int64_t step, const std::string& reason);
  // COLLECTIVE. Call it when connect() has joined that generation.
  void settle();
  // Any thread. Does nothing if the process is alone.
  void tell_event(monitor::Told told);
  int64_t first_step() const { return first_step_; }  // That of this generation.
  const std::vector<int64_t>& steps() const { return steps_; }
  void tell_first_step(int64_t step, const Json& facts);
  Json generations() const;

  // See World.
  bool finish_wanted() const;
  // The CPU time of the process that runs the coordinator, unless it is this one.
  double coordinator_cpu_seconds() const;
  void leave();

 private:
  using Found = std::pair<net::Endpoint, std::string>;  // The coordinator, and the job's token.
  Found find();  // Starts the coordinator if this process has to.
  Found host_coordinator();
  Found find_coordinator();
  Found meet_by_mpi();
  net::Endpoint start_coordinator(const std::string& token);
  net::Endpoint address_to_listen_at() const;
  net::Endpoint stand_by(const std::string& address);
  std::optional<membership::Arrival::Place> place_after(int64_t step, const std::string& reason);
  membership::Coordinator* hosted() const;
  void wait_for_side_tasks(const membership::Coordinator& at_work) const;
  bool all_workers_have_ended() const;
  bool is_alone() const;
  bool all_on_this_host() const { return identity_.local_workers == identity_.workers; }
  bool meets_by_file() const;
  std::string store_key() const;
  std::map<std::string, std::string> facts_in_common() const;

  membership::Identity identity_;
  const Environment environment_;
  WorldOptions options_;
  // The coordinator, if this process is the rendezvous (rank 0 of torchrun and mpirun).
  std::unique_ptr<membership::Coordinator> coordinator_;
  // Since then this process coordinates an elastic job that has no worker.
  mutable std::optional<std::chrono::steady_clock::time_point> alone_since_;
  // These five are for elastic jobs. `standby_` takes over if the job's coordinator is lost.
  std::optional<watch::OrphanWatch> orphan_watch_;
  std::unique_ptr<membership::Coordinator> standby_;
  // The arrival lives until its generation is joined, or until the next arrival.
  std::unique_ptr<membership::Arrival> arrival_;
  std::optional<membership::Former> former_;  // This generation, for the next coordinator.
  std::chrono::steady_clock::time_point formed_at_;
  std::optional<membership::TokenFile> token_file_;
  std::shared_ptr<watch::PhasePage> phases_ = watch::PhasePage::of_this_process();
  // Events wait here also between two generations.
  const std::shared_ptr<membership::EventQueue> events_ =
      std::make_shared<membership::EventQueue>(membership::kEventsOfAHeartbeat);
  std::shared_ptr<membership::Member> member_;
  bool has_a_place_ = false;
  int64_t first_step_ = -1;     // The number of steps committed before this generation.
  std::vector<int64_t> steps_;  // The same for each worker; empty unless workers come in units.
  std::map<std::string, std::string> terms_;
  std::optional<HostMap> places_;
  std::string token_;
  std::optional<membership::CoordinatorLookup> lookup_;  // The coordinator's address in etcd.
};

}  // namespace trireme::comm
