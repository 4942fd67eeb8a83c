#include <fmt/format.h>
#include <trireme/base/cores.h>
#include <trireme/base/environment.h>
#include <trireme/launch/supervision.h>
#include <trireme/launch/supervisor_options.h>
#include <trireme/membership/lookup.h>
#include <unistd.h>

namespace trireme::launch {

void Supervision::start_coordinator() {
  const membership::MembershipOptions membership{.workers = options_.workers,
                                                 .join_timeout = options_.join_timeout,
                                                 .heartbeat_timeout = options_.heartbeat_timeout,
                                                 .stall_timeout = options_.stall_timeout,
                                                 .straggler = options_.straggler};
  std::optional<membership::RosterOptions> roster;
  if (options_.elastic)
    roster = membership::RosterOptions{.minimum = options_.elastic->minimum,
                                       .maximum = options_.elastic->maximum,
                                       .target = options_.workers,
                                       .first_timeout = options_.join_timeout,
                                       .regroup_timeout = options_.join_timeout,
                                       .refill_timeout = options_.join_timeout,
                                       .nodes = options_.nodes,
                                       .by_claim = options_.etcd.has_value(),
                                       .unit = options_.elastic->unit};
  net::Endpoint listen = options_.rendezvous;
  if (options_.etcd && listen.host.empty()) listen.host = address_of_this_host();
  coordinator_ = std::make_unique<membership::Coordinator>(
      listen, token_, membership, roster,
      [this](int64_t process) { return board_.look_at(process); }, options_.roles);
  if (options_.etcd)
    coordinator_->publish(*options_.etcd, options_.join_timeout, [this] { return stop_came(); });
  if (options_.elastic || !options_.roles.empty())
    job_file_.emplace(membership::TokenFile::create(
        membership::token_folder(Environment::of_process()),
        membership::elastic_job_id(::getpid()), {token_, coordinator_->endpoint()}));
}

// Asks etcd again for some time: it may be starting, or be silent for a moment.
std::string Supervision::address_of_this_host() {
  return membership::address_towards(*options_.etcd, options_.join_timeout,
                                     [this] { return stop_came(); });
}

void Supervision::start_workers() {
  for (int i = 0; i < local_.count; ++i) start_worker(i);
}

JobFacts Supervision::facts_for(const watch::PhasePage& page) const {
  const net::Endpoint rendezvous = coordinator_ ? coordinator_->endpoint() : options_.rendezvous;
  return {.rendezvous = options_.etcd ? options_.etcd->describe() : rendezvous.describe(),
          .token = token_,
          .cores = usable_cores(),
          .process = next_process_,
          .page = page.handle(),
          .launcher = ::getpid(),
          .job = mark_};
}

void Supervision::start_worker(int local_worker) {
  std::shared_ptr<watch::PhasePage> page = watch::PhasePage::for_child();
  Worker worker{local_.first + local_worker, next_process_,
                ChildProcess(options_.command,
                             worker_environment(options_, facts_for(*page), local_worker,
                                                environment_of_this_process()),
                             page->descriptor(), /*outlives_us=*/options_.elastic.has_value())};
  board_.add(next_process_++, std::move(page));
  relay_.add_worker(worker.number, worker.process.release_output(),
                    worker.process.release_error_output());
  workers_.push_back(std::move(worker));
}

}  // namespace trireme::launch
