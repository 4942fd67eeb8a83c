#include <trireme/membership/claim.h>

#include <fmt/format.h>
#include <trireme/base/error.h>
#include <trireme/base/log.h>
#include <trireme/base/units.h>
#include <trireme/membership/lookup.h>
#include <trireme/net/control.h>
#include <trireme/net/etcd.h>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <thread>

namespace trireme::membership {
namespace {

using Clock = Deadline::Clock;

constexpr Milliseconds kAnswer{2000};
constexpr Milliseconds kProbe{500};
constexpr Milliseconds kClaimAgain{100};
constexpr Milliseconds kPatience{2000};  // The wait beyond the lease of a holder that is gone.

}  // namespace

struct Claim::Impl {
  enum class Holder { lives, gone, unknown };

  void run(const std::stop_token& stop);
  bool ask(const std::stop_token& stop);
  Holder look_at(const std::string& other) const;
  void note(bool now, const std::string& other);

  const net::EtcdUrl where;
  const std::string self, token;
  const For whom;
  const Events events;
  const ClaimTimes times;
  const std::string key = coordinator_key(where.job);
  net::Etcd etcd{where.servers};
  int64_t lease = 0;
  bool was_held = false;

  std::mutex mutex;  // Guards the members below.
  std::condition_variable_any changed;
  bool held = false;             // The last answer of etcd.
  std::string holder;            // The address of another coordinator that has the name.
  std::optional<Error> failure;  // The reason why etcd's answer is unknown.
  std::jthread thread;           // The last member: it uses all of the above.
};

void Claim::Impl::run(const std::stop_token& stop) {
  while (!stop.stop_requested()) {
    Milliseconds pause = kClaimAgain;
    try {
      if (!ask(stop)) return;
      const std::lock_guard lock(mutex);
      failure.reset();  // Etcd has answered, even if another process has the name.
      if (held) pause = times.renewal;
    } catch (const Error& error) {
      const std::lock_guard lock(mutex);
      if (!failure)
        log_warning("membership: cannot renew the name of job '{}' in etcd: {}", where.job,
                    error.what());
      failure = error;
      changed.notify_all();
    }
    std::unique_lock lock(mutex);
    changed.wait_for(lock, stop, pause, [] { return false; });
  }
}

// Asks etcd once. Returns false if another coordinator has the name for good.
bool Claim::Impl::ask(const std::stop_token& stop) {
  const auto asked = Clock::now();
  const Deadline deadline = Deadline::after(kAnswer);
  const auto entry = etcd.get(key, deadline);
  const bool ours = entry && entry->value == self;
  if (entry && !ours) {
    const Holder is = look_at(entry->value);
    if (is == Holder::lives) {
      note(/*now=*/false, entry->value);
      events.taken(stop, entry->value);
      return false;
    }
    // The claim waits until the holder's lease has run out, or another one takes the name over.
    if (is == Holder::unknown || whom == For::new_job) return true;
  }
  if (lease == 0 || !etcd.keep_alive(lease, deadline)) lease = etcd.grant(times.lease, deadline);
  const bool lasts = ours && entry->lease == lease;
  if (!lasts && !etcd.replace(key, self, lease, entry ? entry->revision : 0, deadline))
    return true;
  note(/*now=*/true, {});
  events.held(stop, asked + times.lease - times.margin);
  return true;
}

// A claim that once held the name and finds another holder was silent for too long. It does not
// matter whether that holder still lives.
Claim::Impl::Holder Claim::Impl::look_at(const std::string& other) const {
  if (was_held) return Holder::lives;
  switch (net::reach(net::parse_endpoint(other), token, Deadline::after(kProbe))) {
    case net::Reach::listens: return Holder::lives;
    case net::Reach::other_job: return whom == For::new_job ? Holder::lives : Holder::unknown;
    case net::Reach::refused: return Holder::gone;
    case net::Reach::silent: return Holder::unknown;
  }
  return Holder::unknown;
}

void Claim::Impl::note(bool now, const std::string& other) {
  const std::lock_guard lock(mutex);
  if (now && was_held && failure)
    log_info("membership: the name of job '{}' in etcd is renewed again", where.job);
  held = now;
  was_held = was_held || now;
  holder = other;
  failure.reset();
  changed.notify_all();
}

Claim::Claim(net::EtcdUrl where, const net::Endpoint& self, std::string token, For whom,
             Events events, ClaimTimes times)
    : impl_(new Impl{.where = std::move(where),
                     .self = self.describe(),
                     .token = std::move(token),
                     .whom = whom,
                     .events = std::move(events),
                     .times = times}) {
  impl_->thread =
      std::jthread([impl = impl_.get()](const std::stop_token& stop) { impl->run(stop); });
}

Claim::~Claim() = default;

void Claim::wait_until_held(Milliseconds patience, const StopAsked& stop_asked) {
  Impl& impl = *impl_;
  std::unique_lock lock(impl.mutex);
  const auto decided = [&] { return impl.held || !impl.holder.empty(); };
  const Deadline etcd_answers = Deadline::after(patience);
  const auto lease_runs_out = [&] { return Clock::now() + impl.times.lease + kPatience; };
  for (auto free_at = lease_runs_out(); !impl.changed.wait_for(lock, kClaimAgain, decided);) {
    check_stop(stop_asked);
    if (!impl.failure) {
      if (Clock::now() >= free_at) break;  // Another process renews the name.
      continue;
    }
    if (etcd_answers.expired())
      throw Error(ErrorCode::timeout, "membership",
                  fmt::format("the name of job '{}' could not be taken in {} within {}: {}",
                              impl.where.job, impl.where.describe(), format_duration(patience),
                              brief(*impl.failure)),
                  "check that etcd runs and that this host can reach it");
    free_at = lease_runs_out();
  }
  if (impl.held) return;
  throw Error(ErrorCode::invalid_argument, "membership",
              fmt::format("a job with the name '{}' is running: {} holds it in {} (key {})",
                          impl.where.job,
                          impl.holder.empty() ? "a process that does not answer"
                                              : "its coordinator at " + impl.holder,
                          impl.where.describe(), impl.key),
              "another name, or wait until that job has ended");
}

void Claim::stop() { impl_->thread.request_stop(); }

void Claim::withdraw(Deadline deadline) {
  stop();
  impl_->thread.join();
  if (impl_->lease == 0) return;
  try {
    impl_->etcd.revoke(impl_->lease, deadline);
  } catch (const Error& error) {
    log_warning(
        "membership: the name of job '{}' stays in etcd until its lease of {} runs out: {}",
        impl_->where.job, format_duration(impl_->times.lease), error.what());
  }
}

}  // namespace trireme::membership
