#include <fmt/format.h>
#include <trireme/base/error.h>
#include <trireme/base/units.h>
#include <trireme/comm/wait_limits.h>
#include <trireme/membership/member.h>
#include <thread>

namespace trireme::comm {
namespace {

// The time that the coordinator has after a broken connection to report the lost worker.
constexpr Milliseconds kVerdictWait{2000};

}  // namespace

bool WaitLimits::is_lost() const {
  return given_up_.load(std::memory_order_acquire) || member_->is_lost();
}

void WaitLimits::throw_if_lost() const {
  if (given_up_.load(std::memory_order_acquire))
    throw Error(ErrorCode::aborted, "comm", fmt::format("this rank gave up: {}", reason_));
  member_->throw_if_lost();
}

void WaitLimits::give_up(const std::string& reason) {
  std::call_once(gives_up_, [&] {
    reason_ = reason;
    given_up_.store(true, std::memory_order_release);
  });
}

std::string WaitLimits::name_of(int rank) const {
  const int worker = workers_.empty() ? rank : workers_[static_cast<size_t>(rank)];
  const membership::Peer& peer = member_->peers()[static_cast<size_t>(worker)];
  return fmt::format("worker {} ({}, pid {})", worker, peer.host, peer.pid);
}

void WaitLimits::explain(std::string_view operation, std::string_view what) const {
  for (const Deadline until = Deadline::after(kVerdictWait); !until.expired() && !is_lost();)
    std::this_thread::sleep_for(Milliseconds(2));
  throw_if_lost();
  throw Error(ErrorCode::peer_lost, "comm", fmt::format("{} broke off: {}", operation, what),
              "see the other ranks' output for the first error");
}

void WaitLimits::time_out(std::string_view operation, std::string_view what) const {
  throw_if_lost();
  throw Error(ErrorCode::timeout, "comm",
              fmt::format("{}: waited {} for {}", operation, format_duration(timeout_), what),
              "comm.timeout if a step takes that long; otherwise see what that rank does");
}

}  // namespace trireme::comm
