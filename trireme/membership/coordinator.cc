#include <fmt/format.h>
#include <trireme/base/error.h>
#include <trireme/base/log.h>
#include <trireme/membership/coordinator_impl.h>
#include <algorithm>

namespace trireme::membership {
namespace {

using Clock = std::chrono::steady_clock;

}  // namespace

Coordinator::Coordinator(const net::Endpoint& listen, std::string token, MembershipOptions options,
                         std::optional<RosterOptions> elastic, LookAt look, const Roles& roles) {
  if (options.workers < 1)
    throw Error(
        ErrorCode::invalid_argument, "membership",
        fmt::format("a job of {} workers cannot run; at least 1 is needed", options.workers));
  impl_ = std::make_unique<Impl>(options, elastic, std::move(look), roles);
  impl_->token = token;
  std::lock_guard lock(impl_->mutex);  // The first events may come before `server` is set.
  impl_->server = std::make_unique<net::ControlServer>(listen, std::move(token), impl_->events());
}

Coordinator::Coordinator(const net::Endpoint& listen, std::string token,
                         std::optional<net::EtcdUrl> etcd) {
  impl_ = std::make_unique<Impl>(MembershipOptions{}, std::nullopt, LookAt(), Roles());
  impl_->stands_by = true;
  impl_->token = token;
  impl_->etcd = std::move(etcd);
  std::lock_guard lock(impl_->mutex);
  impl_->server = std::make_unique<net::ControlServer>(listen, std::move(token), impl_->events());
}

Coordinator::~Coordinator() {
  impl_->server->stop();  // No more events come. The probers and the claims end after this.
}

net::Endpoint Coordinator::endpoint() const { return impl_->server->endpoint(); }

void Coordinator::publish(const net::EtcdUrl& etcd, Milliseconds patience,
                          const StopAsked& stop_asked) {
  Claim* claim = nullptr;
  {
    std::lock_guard lock(impl_->mutex);
    impl_->etcd = etcd;
    impl_->claim(Claim::For::new_job);
    claim = impl_->claims.back().get();
  }
  claim->wait_until_held(patience, stop_asked);
}

void Coordinator::withdraw(Deadline deadline) {
  std::vector<std::unique_ptr<Claim>> claims;
  {
    std::lock_guard lock(impl_->mutex);
    claims.swap(impl_->claims);
  }
  for (const auto& claim : claims) claim->stop();
  if (!claims.empty()) claims.back()->withdraw(deadline);
}

bool Coordinator::was_superseded() const {
  std::lock_guard lock(impl_->mutex);
  return impl_->superseded;
}

PhaseAt Coordinator::last_phase(int worker) const {
  std::lock_guard lock(impl_->mutex);
  return impl_->membership->last_phase(worker);
}

bool Coordinator::said_goodbye(int worker) const {
  std::lock_guard lock(impl_->mutex);
  return impl_->membership->said_goodbye(worker);
}

bool Coordinator::any_step_finished() const {
  std::lock_guard lock(impl_->mutex);
  return impl_->any_step_finished || impl_->membership->any_step_finished();
}

std::vector<Notice> Coordinator::take_notices() {
  std::lock_guard lock(impl_->mutex);
  return impl_->membership->take_notices();
}

EventBatch Coordinator::take_events() { return impl_->events_told.take(); }

std::optional<Failure> Coordinator::ended() const {
  const std::lock_guard lock(impl_->mutex);
  return impl_->membership->ended();
}
std::optional<LostWorker> Coordinator::first_lost() const {
  std::lock_guard lock(impl_->mutex);
  return impl_->membership->first_lost();
}

void Coordinator::report_lost(int worker, const std::string& reason) {
  std::lock_guard lock(impl_->mutex);
  impl_->look_at_all(Clock::now());
  impl_->deliver(impl_->membership->lost(worker, reason));
}

void Coordinator::report_lost_process(int64_t process, const std::string& reason) {
  std::lock_guard lock(impl_->mutex);
  const auto now = Clock::now();
  if (const auto worker = impl_->generations->worker_of(process)) {
    impl_->look_at_all(now);
    impl_->deliver(impl_->membership->lost(*worker, reason));
    impl_->note_lost_workers(now);
  } else {
    impl_->generations->process_ended(process, reason, now);
  }
}

std::optional<PhaseAt> Coordinator::last_phase_of_process(int64_t process) const {
  std::lock_guard lock(impl_->mutex);
  if (const auto worker = impl_->generations->worker_of(process))
    return impl_->membership->last_phase(*worker);
  return impl_->generations->last_phase(process);
}

void Coordinator::finish() {
  std::lock_guard lock(impl_->mutex);
  if (impl_->generations) impl_->generations->finish(Clock::now());
}

bool Coordinator::is_finishing() const {
  std::lock_guard lock(impl_->mutex);
  return impl_->generations->is_finishing();
}

bool Coordinator::members_were_stopped() const {
  std::lock_guard lock(impl_->mutex);
  return impl_->members_were_stopped;
}

int Coordinator::target() const {
  std::lock_guard lock(impl_->mutex);
  return impl_->generations->target();
}

int Coordinator::resizes() const {
  std::lock_guard lock(impl_->mutex);
  return impl_->generations->resizes();
}

std::vector<LostProcess> Coordinator::take_lost() {
  std::lock_guard lock(impl_->mutex);
  if (!impl_->generations->is_claimed(Clock::now())) return {};
  return impl_->generations->take_lost();
}

bool Coordinator::has_taken_over() const {
  std::lock_guard lock(impl_->mutex);
  return impl_->stands_by && impl_->generations;
}

std::optional<LostMember> Coordinator::lost_member(int64_t process) const {
  std::lock_guard lock(impl_->mutex);
  return impl_->generations->lost_member(process);
}

bool Coordinator::takes_part(int64_t process) const {
  std::lock_guard lock(impl_->mutex);
  return impl_->generations->takes_part(process);
}

bool Coordinator::was_dismissed(int64_t process) const {
  std::lock_guard lock(impl_->mutex);
  return impl_->generations->was_dismissed(process);
}

std::optional<Failure> Coordinator::failure() const {
  std::lock_guard lock(impl_->mutex);
  return impl_->generations->failure();
}

// A process of a job that has failed for good waits or works for nothing, and does not say
// goodbye: it has ended once its connection is closed.
bool Coordinator::Impl::anyone_left() const {
  if (!generations) return membership->anyone_present();
  if (!generations->failure()) return membership->anyone_present() || generations->anyone_left();
  const auto arrives = [](const auto& each) { return each.second == net::Purpose::arrival; };
  const auto is_worker = [](const auto& each) { return each.first < kFirstSideTask; };
  return std::ranges::any_of(purposes, arrives) || std::ranges::any_of(connection_of, is_worker);
}

bool Coordinator::wait_until_all_left(Deadline deadline) const {
  std::unique_lock lock(impl_->mutex);
  return impl_->changed.wait_until(lock, deadline.at(), [&] { return !impl_->anyone_left(); });
}

}  // namespace trireme::membership
