#include <fmt/format.h>
#include <trireme/base/error.h>
#include <trireme/base/log.h>
#include <trireme/membership/coordinator_impl.h>

namespace trireme::membership {
namespace {

constexpr Milliseconds kLookAgain{100};
constexpr Milliseconds kProbeTimeout{500};

}  // namespace

// Takes over the job that `former` describes. This may happen again: if processes come from a
// later generation, which another coordinator formed, this coordinator's knowledge is old.
void Coordinator::Impl::take_over(const Former& former, Clock::time_point now) {
  give_up();
  options = former.membership;
  membership = std::make_unique<Membership>(options);
  side_tasks = SideTasks(former.roles, options.heartbeat_timeout);
  generations.emplace(former, actions(), now);
  log_warning("membership: the coordinator at {} was lost; {} takes over after generation {}",
              former.coordinator.describe(), server->endpoint().describe(), former.generation);
  probers.emplace_back([this, generation = former.generation](const std::stop_token& stop) {
    look_for_the_missing(stop, generation);
  });
  if (etcd) claim(Claim::For::successor);
}

void Coordinator::Impl::claim(Claim::For whom) {
  const Claim::Events events{.held =
                                 [this](const std::stop_token& stop, Clock::time_point until) {
                                   const std::lock_guard lock(mutex);
                                   if (!stop.stop_requested() && generations)
                                     generations->claimed(until, Clock::now());
                                 },
                             .taken =
                                 [this](const std::stop_token& stop, const std::string& other) {
                                   const std::lock_guard lock(mutex);
                                   if (!stop.stop_requested()) superseded_by(other);
                                 }};
  claims.push_back(std::make_unique<Claim>(*etcd, server->endpoint(), token, whom, events));
}

// Gives up: the processes whose connections are closed will find the other coordinator.
void Coordinator::Impl::superseded_by(const std::string& other) {
  if (!generations)
    return log_warning(
        "membership: the name of job '{}' in etcd is held by {}: this job cannot be found there "
        "now",
        etcd->job, other);
  log_warning("membership: the name of job '{}' in etcd is held by {}; {} gives up", etcd->job,
              other, server->endpoint().describe());
  superseded = !stands_by;
  give_up();
}

// Closes all connections. A coordinator that stood by stands by again.
void Coordinator::Impl::give_up() {
  for (std::jthread& prober : probers) prober.request_stop();
  for (const auto& each : claims) each->stop();
  if (!generations) return;
  for (const net::ConnectionId connection : generations->all_waiting()) server->close(connection);
  for (const auto& [worker, connection] : connection_of) server->close(connection);
  worker_of.clear();
  connection_of.clear();
  side_tasks = SideTasks(side_tasks.roles(), options.heartbeat_timeout);
  if (stands_by) generations.reset();
}

// Finds the members that died together with the last coordinator, which cannot report them: their
// ports refuse connections. Ends when this coordinator's first generation has formed.
void Coordinator::Impl::look_for_the_missing(const std::stop_token& stop, int generation) {
  for (; !stop.stop_requested(); std::this_thread::sleep_for(kLookAgain)) {
    std::vector<Former::Place> missing;
    {
      const std::lock_guard lock(mutex);
      if (stop.stop_requested() || generations->generation() != generation) return;
      missing = generations->missing();
    }
    for (const auto& [process, standby] : missing) {
      if (stop.stop_requested()) return;
      const net::Reach reach = net::reach(standby, token, Deadline::after(kProbeTimeout));
      if (!net::is_gone(reach)) continue;
      const std::lock_guard lock(mutex);
      if (stop.stop_requested()) return;
      if (const auto worker = generations->worker_of(process))
        generations->lost_worker(
            *worker, {},
            {.process = process,
             .text = fmt::format("worker {} was gone when the coordinator was lost", *worker)},
            Clock::now());
    }
  }
}

}  // namespace trireme::membership
