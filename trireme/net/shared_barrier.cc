#include <fmt/format.h>
#include <trireme/base/cores.h>
#include <trireme/base/units.h>
#include <trireme/net/fixed_text.h>
#include <trireme/net/futex.h>
#include <trireme/net/shared_barrier.h>
#include <algorithm>
#include <cstring>
#include <thread>

namespace trireme::net {
namespace {

// Waking a thread costs about as much as this, so spinning longer could not win it back.
constexpr auto kSpin = std::chrono::microseconds(100);
}  // namespace

BarrierView::BarrierView(SharedBarrier& barrier, int rank, int size, Options options)
    : barrier_(barrier), rank_(rank), size_(size), options_(std::move(options)), spin_(size <= usable_cores()) {}

bool BarrierView::passed(uint32_t phase) const { return barrier_.phase.load(std::memory_order_acquire) != phase; }

void BarrierView::throw_if_ended() const {
  if (barrier_.ended.load(std::memory_order_acquire) == 0) return;
  // The reason is being written, unless its writer died over it.
  const Deadline written = Deadline::after(Milliseconds(200));
  while (barrier_.ended.load(std::memory_order_acquire) == 1) {
    if (written.expired()) throw Error(ErrorCode::aborted, "comm", "another rank gave up and was lost before it could say why");
    std::this_thread::yield();
  }
  throw Error(static_cast<ErrorCode>(barrier_.code), "comm", barrier_.reason.data(), barrier_.remedy.data());
}

void BarrierView::end(ErrorCode code, const std::string& reason, const std::string& remedy) {
  uint32_t open = 0;
  if (!barrier_.ended.compare_exchange_strong(open, 1)) return;
  barrier_.code = static_cast<int32_t>(code);
  write_text(barrier_.reason, reason);
  write_text(barrier_.remedy, remedy);
  barrier_.ended.store(2, std::memory_order_release);
  barrier_.phase.fetch_add(1, std::memory_order_acq_rel);
  futex_wake_all(barrier_.phase);
}

void BarrierView::arrive_and_wait(const char* operation) {
  throw_if_ended();
  if (size_ == 1) return;
  const uint32_t phase = barrier_.phase.load(std::memory_order_acquire);
  barrier_.arrivals[rank_].count.fetch_add(1, std::memory_order_relaxed);
  if (barrier_.arrived.fetch_add(1, std::memory_order_acq_rel) + 1 == static_cast<uint32_t>(size_)) {
    barrier_.arrived.store(0, std::memory_order_relaxed);
    barrier_.phase.fetch_add(1, std::memory_order_acq_rel);
    futex_wake_all(barrier_.phase);
  } else {
    wait(phase, operation);
  }
  throw_if_ended();
}

void BarrierView::wait(uint32_t phase, const char* operation) {
  if (spin_) {
    const auto until = Deadline::Clock::now() + kSpin;
    do {
      for (int i = 0; i < 16; ++i) {
        if (passed(phase)) return;
        pause_core();
      }
    } while (Deadline::Clock::now() < until);
  }
  const Deadline deadline = Deadline::after(options_.timeout);
  while (!passed(phase)) {
    futex_wait(barrier_.phase, phase);
    if (passed(phase)) return;
    if (options_.throw_if_lost) {
      try {
        options_.throw_if_lost();
      } catch (const Error& error) {
        end(error.code(), brief(error));
        throw;
      }
    }
    if (deadline.expired())
      end(ErrorCode::timeout, fmt::format("{}: waited {} for rank {} to arrive", operation, format_duration(options_.timeout), missing()),
          "comm.timeout if a step takes that long; otherwise see what that rank does");
  }
}

std::string BarrierView::missing() const {
  const uint64_t mine = barrier_.arrivals[rank_].count.load(std::memory_order_relaxed);
  std::string ranks;
  for (int other = 0; other < size_; ++other)
    if (barrier_.arrivals[other].count.load(std::memory_order_relaxed) < mine)
      ranks += fmt::format("{}{}", ranks.empty() ? "" : ", ", other);
  return ranks;
}

}  // namespace trireme::net
