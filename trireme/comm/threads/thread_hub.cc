#include <fmt/format.h>

#include <trireme/base/cores.h>
#include <trireme/base/deadline.h>
#include <trireme/base/error.h>
#include <trireme/base/units.h>
#include <trireme/comm/threads/thread_hub.h>
#include <algorithm>
#include <thread>

namespace trireme::comm {
namespace {

constexpr auto kHubSpin = std::chrono::microseconds(50);
// After this time the core is probably needed by another rank.
constexpr auto kAlone = std::chrono::microseconds(3);
constexpr uint64_t kEnded = uint64_t{1} << 31;

uint64_t phase_of(uint64_t state) { return state >> 32; }
bool ended(uint64_t state) { return (state & kEnded) != 0; }
int arrived(uint64_t state) { return static_cast<int>(state & (kEnded - 1)); }
uint64_t start_of(uint64_t phase) { return phase << 32; }

}  // namespace

ThreadHub::ThreadHub(int size, Milliseconds timeout)
    : size_(size),
      timeout_(timeout),
      enough_cores_(size <= usable_cores()),
      postings_(size),
      arrivals_(size),
      mail_(timeout, [this] { throw_if_ended(); }) {}

void ThreadHub::throw_ending() const {
  throw Error(ending_->code, "comm", ending_->reason, ending_->remedy);
}

void ThreadHub::throw_if_ended() const {
  if (ended(state_.load(std::memory_order_acquire))) throw_ending();
}

// Returns false if all ranks had arrived by then. The first ending stays.
bool ThreadHub::end_unless_passed(uint64_t phase, Ending ending) {
  uint64_t state = state_.load(std::memory_order_acquire);
  if (ended(state)) return true;
  ending_ = std::move(ending);
  while (phase_of(state) == phase) {
    if (state_.compare_exchange_weak(state, state | kEnded, std::memory_order_acq_rel,
                                     std::memory_order_acquire)) {
      changed_.notify_all();
      mail_.wake();
      return true;
    }
  }
  ending_.reset();
  return false;
}

void ThreadHub::arrive_and_wait(int rank, const char* operation) {
  throw_if_ended();
  if (size_ == 1) return;
  arrivals_[rank].count.fetch_add(1, std::memory_order_relaxed);
  uint64_t state = state_.fetch_add(1, std::memory_order_acq_rel) + 1;
  const uint64_t phase = phase_of(state);
  if (arrived(state) == size_) {
    while (!ended(state)) {
      if (!state_.compare_exchange_weak(state, start_of(phase + 1))) continue;
      if (sleepers_.load() > 0) {
        const std::lock_guard lock(mutex_);
        changed_.notify_all();
      }
      return;
    }
    throw_ending();
  }
  if (!wait_until_passed(phase)) {
    const std::lock_guard lock(mutex_);
    end_unless_passed(
        phase, {ErrorCode::timeout,
                fmt::format("{}: waited {} for rank {} to arrive", operation,
                            format_duration(timeout_), missing_beside(rank)),
                "comm.timeout if a step takes that long; otherwise see what that rank does"});
  }
  if (phase_of(state_.load(std::memory_order_acquire)) == phase) throw_ending();
}

// Returns false after the time-out, and true if the barrier was passed or the hub has ended.
bool ThreadHub::wait_until_passed(uint64_t phase) {
  const auto passed = [&] {
    const uint64_t state = state_.load();
    return phase_of(state) != phase || ended(state);
  };
  const auto start = Deadline::Clock::now();
  for (auto waited = start - start; waited < kHubSpin; waited = Deadline::Clock::now() - start) {
    for (int i = 0; i < 16; ++i)
      if (passed()) return true;
    if (!enough_cores_ || waited > kAlone) std::this_thread::yield();
  }
  sleepers_.fetch_add(1);
  std::unique_lock lock(mutex_);
  const bool in_time = changed_.wait_until(lock, Deadline::after(timeout_).at(), passed);
  sleepers_.fetch_sub(1);
  return in_time;
}

// The ranks that have reached fewer barriers than `rank`: "1, 3".
std::string ThreadHub::missing_beside(int rank) const {
  std::string missing;
  for (int other = 0; other < size_; ++other)
    if (arrivals_[other].count.load() < arrivals_[rank].count.load())
      missing += fmt::format("{}{}", missing.empty() ? "" : ", ", other);
  return missing;
}

void ThreadHub::meet(int rank, const Posting& posting) {
  postings_[rank] = posting;
  arrive_and_wait(rank, posting.operation);
  const auto other = std::find_if(postings_.begin(), postings_.end(),
                                  [&](const Posting& theirs) { return theirs != posting; });
  if (other == postings_.end()) return;
  const auto describe = [](int who, const Posting& what) {
    const std::string detail =
        what.root < 0 ? std::string(what.detail) : fmt::format("root {}", what.root);
    return fmt::format("rank {} calls {} with {} elements ({}, {})", who, what.operation,
                       what.elements, what.type, detail);
  };
  const std::string difference = describe(rank, posting) + ", " +
                                 describe(static_cast<int>(other - postings_.begin()), *other);
  // At this barrier all ranks have seen the difference and read the postings, so one
  // may be replaced.
  arrive_and_wait(rank, posting.operation);
  throw Error(ErrorCode::invalid_argument, "comm", difference,
              "the same collectives in the same order on every rank");
}

void ThreadHub::part(int rank, const char* operation) {
  arrive_and_wait(rank, operation);
  forget(rank);
}

void ThreadHub::abort(int rank, const std::string& reason) {
  const std::lock_guard lock(mutex_);
  // The others no longer pass the barrier at which they wait.
  while (!end_unless_passed(
      phase_of(state_.load()),
      {ErrorCode::aborted, fmt::format("rank {} gave up: {}", rank, reason), {}})) {
  }
}

}  // namespace trireme::comm
