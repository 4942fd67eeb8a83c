#include <fmt/format.h>
#include <trireme/base/cores.h>
#include <trireme/base/error_parts.h>
#include <trireme/base/units.h>
#include <trireme/net/fixed_text.h>
#include <trireme/net/futex.h>
#include <trireme/net/shared_barrier.h>
#include <algorithm>
#include <cstring>
#include <thread>

namespace trireme::net {
namespace {

// Waking a thread costs about this time, so a longer spin could not gain anything.
constexpr auto kSpin = std::chrono::microseconds(100), kSpinOfThreads = kSpin / 2;
// After this time the core is probably needed by another thread of the process.
constexpr auto kAlone = std::chrono::microseconds(3);
constexpr uint32_t kEnded = 1 << 8;
constexpr uint32_t kPhase = 1 << 9;
// Each rank may still arrive once after the end.
static_assert(2 * kMaxRanksOfHost < static_cast<int>(kEnded));

uint32_t phase_of(uint32_t state) { return state / kPhase; }
bool has_ended(uint32_t state) { return (state & kEnded) != 0; }
uint32_t arrived(uint32_t state) { return state % kEnded; }

}  // namespace

BarrierView::BarrierView(SharedBarrier& barrier, int rank, int size, Options options)
    : barrier_(barrier),
      rank_(rank),
      size_(size),
      options_(std::move(options)),
      enough_cores_(size <= usable_cores()) {}

void BarrierView::throw_ending() const {
  throw Error(static_cast<ErrorCode>(barrier_.code), "comm", barrier_.reason.data(),
              barrier_.remedy.data());
}

void BarrierView::throw_if_ended() const {
  if (has_ended(barrier_.state.load(std::memory_order_acquire))) throw_ending();
}

// Returns false if all ranks had arrived before. The first ending stays.
bool BarrierView::end_unless_passed(uint32_t phase, ErrorCode code, const std::string& reason,
                                    const std::string& remedy) {
  // A rank writes its reason within microseconds, unless it dies while writing.
  const Deadline written = Deadline::after(Milliseconds(200));
  for (uint32_t open = 0; !barrier_.ending.compare_exchange_strong(open, 1) && !written.expired();
       open = 0) {
    if (has_ended(barrier_.state.load(std::memory_order_acquire))) return true;
    std::this_thread::yield();
  }
  barrier_.code = static_cast<int32_t>(code);
  write_text(barrier_.reason, reason);
  write_text(barrier_.remedy, remedy);
  uint32_t state = barrier_.state.load(std::memory_order_acquire);
  while (phase_of(state) == phase && !has_ended(state)) {
    if (!barrier_.state.compare_exchange_weak(state, state | kEnded, std::memory_order_acq_rel,
                                              std::memory_order_acquire))
      continue;
    futex_wake_all(barrier_.state);
    return true;  // `ending` stays taken.
  }
  if (has_ended(state)) return true;
  barrier_.ending.store(0, std::memory_order_release);
  return false;
}

void BarrierView::end(ErrorCode code, const std::string& reason, const std::string& remedy) {
  // Ends the meeting at which the other ranks are; none of them passes it any more.
  while (!end_unless_passed(phase_of(barrier_.state.load(std::memory_order_acquire)), code, reason,
                            remedy)) {
  }
}

void BarrierView::arrive_and_wait(const char* operation) {
  throw_if_ended();
  if (size_ == 1) return;
  barrier_.arrivals[rank_].count.fetch_add(1, std::memory_order_relaxed);
  uint32_t state = barrier_.state.fetch_add(1, std::memory_order_acq_rel) + 1;
  const uint32_t phase = phase_of(state);
  if (arrived(state) == static_cast<uint32_t>(size_)) {
    while (!has_ended(state)) {
      if (!barrier_.state.compare_exchange_weak(state, (phase + 1) * kPhase)) continue;
      if (barrier_.sleepers.load() > 0) futex_wake_all(barrier_.state);
      return;
    }
    throw_ending();
  }
  wait(phase, operation);
  if (phase_of(barrier_.state.load(std::memory_order_acquire)) == phase) throw_ending();
}

bool BarrierView::is_over(uint32_t phase) const {
  const uint32_t state = barrier_.state.load(std::memory_order_acquire);
  return phase_of(state) != phase || has_ended(state);
}

// Returns whether the phase was over while this rank spun.
bool BarrierView::spin(uint32_t phase) const {
  const bool yields = options_.sharing == Sharing::threads;
  if (!enough_cores_ && !yields) return false;
  const auto limit = yields ? kSpinOfThreads : kSpin;
  const auto start = Deadline::Clock::now();
  for (auto waited = start - start; waited < limit; waited = Deadline::Clock::now() - start) {
    for (int i = 0; i < 16; ++i) {
      if (is_over(phase)) return true;
      if (!yields) pause_core();
    }
    if (yields && (!enough_cores_ || waited > kAlone)) std::this_thread::yield();
  }
  return false;
}

// Waits until the phase is passed or ended.
void BarrierView::wait(uint32_t phase, const char* operation) {
  if (spin(phase)) return;
  const Deadline deadline = Deadline::after(options_.timeout);
  while (!is_over(phase)) {
    const uint32_t state = barrier_.state.load(std::memory_order_acquire);
    if (phase_of(state) == phase && !has_ended(state)) {
      // The last rank to arrive either sees this count, or has changed the state before the call.
      barrier_.sleepers.fetch_add(1);
      futex_wait(barrier_.state, state);  // Returns when other ranks arrive meanwhile.
      barrier_.sleepers.fetch_sub(1);
    }
    if (is_over(phase)) return;
    if (options_.throw_if_lost) {
      try {
        options_.throw_if_lost();
      } catch (const Error& error) {
        // Each rank adds its own number to the text.
        const auto [what, remedy] = parts_of(error);
        end_unless_passed(phase, error.code(), what, remedy);
        continue;
      }
    }
    if (deadline.expired())
      end_unless_passed(
          phase, ErrorCode::timeout,
          fmt::format("{}: waited {} for rank {} to arrive", operation,
                      format_duration(options_.timeout), missing()),
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
