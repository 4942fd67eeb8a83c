#include <fmt/format.h>

#include <thread>
#include <trireme/base/error.h>
#include <trireme/base/units.h>
#include <trireme/comm/threads/thread_hub.h>

namespace trireme::comm {
namespace {
constexpr auto kSpin = std::chrono::microseconds(50);
}

ThreadHub::ThreadHub(int size, Milliseconds timeout)
    : size_(size),
      timeout_(timeout),
      spin_(size <= static_cast<int>(std::thread::hardware_concurrency())),
      postings_(size),
      arrivals_(size, 0) {}

void ThreadHub::throw_if_aborted() const {
  if (!aborted_.load(std::memory_order_acquire)) return;
  throw Error(ErrorCode::aborted, "comm", abort_reason_);
}

void ThreadHub::arrive_and_wait(int rank, const char* operation) {
  throw_if_aborted();
  if (size_ == 1) return;
  const uint64_t phase = phase_.load(std::memory_order_acquire);
  {
    const std::lock_guard lock(mutex_);
    ++arrivals_[rank];
    if (++waiting_ == size_) {
      waiting_ = 0;
      phase_.store(phase + 1, std::memory_order_release);
      changed_.notify_all();
      return;
    }
  }
  const auto passed = [&] { return phase_.load(std::memory_order_acquire) != phase || aborted_.load(std::memory_order_acquire); };
  if (spin_) {
    const auto until = Deadline::Clock::now() + kSpin;
    while (!passed() && Deadline::Clock::now() < until) {
    }
  }
  if (!passed()) {
    std::unique_lock lock(mutex_);
    if (!changed_.wait_for(lock, timeout_, passed)) {
      std::string missing;
      for (int other = 0; other < size_; ++other)
        if (arrivals_[other] < arrivals_[rank]) missing += fmt::format("{}{}", missing.empty() ? "" : ", ", other);
      throw Error(ErrorCode::timeout, "comm",
                  fmt::format("{}: waited {} for rank {} to arrive", operation, format_duration(timeout_), missing),
                  "comm.timeout if a step takes that long; otherwise see what that rank does");
    }
  }
  if (phase_.load(std::memory_order_acquire) == phase) throw_if_aborted();
}

void ThreadHub::meet(int rank, const Posting& posting) {
  postings_[rank] = posting;
  arrive_and_wait(rank, posting.operation);
  for (int other = 0; other < size_; ++other) {
    if (postings_[other] == posting) continue;
    const Posting& theirs = postings_[other];
    const std::string what = fmt::format("rank {} calls {} with {} elements (type {}, detail {}), rank {} calls {} with {} elements (type {}, detail {})", rank,
                                         posting.operation, posting.elements, posting.type, posting.detail, other, theirs.operation, theirs.elements,
                                         theirs.type, theirs.detail);
    throw Error(ErrorCode::invalid_argument, "comm", what, "the same collectives in the same order on every rank");
  }
}

void ThreadHub::put(int from, int to, int tag, std::vector<std::byte> message) {
  throw_if_aborted();
  const std::lock_guard lock(mutex_);
  mail_[{from, to, tag}].push_back(std::move(message));
  changed_.notify_all();
}

std::vector<std::byte> ThreadHub::take(int from, int to, int tag) {
  std::unique_lock lock(mutex_);
  auto& box = mail_[{from, to, tag}];
  if (!changed_.wait_for(lock, timeout_, [&] { return !box.empty() || aborted_.load(); }))
    throw Error(ErrorCode::timeout, "comm", fmt::format("recv: waited {} for a message of rank {} (tag {})", format_duration(timeout_), from, tag),
                "look whether that rank sends it");
  if (box.empty()) throw_if_aborted();
  std::vector<std::byte> message = std::move(box.front());
  box.pop_front();
  return message;
}

void ThreadHub::abort(int rank, const std::string& reason) {
  const std::lock_guard lock(mutex_);
  if (aborted_) return;
  abort_reason_ = fmt::format("rank {} gave up: {}", rank, reason);
  aborted_.store(true, std::memory_order_release);
  changed_.notify_all();
}

}  // namespace trireme::comm
