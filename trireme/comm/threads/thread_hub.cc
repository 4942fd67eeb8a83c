#include <fmt/format.h>

#include <trireme/base/error.h>
#include <trireme/base/units.h>
#include <trireme/comm/threads/thread_hub.h>
#include <algorithm>
#include <thread>

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

void ThreadHub::throw_if_ended() const {
  if (!ended_.load(std::memory_order_acquire)) return;
  throw Error(ending_->code, "comm", ending_->reason, ending_->remedy);
}

void ThreadHub::end(ErrorCode code, const std::string& reason, const std::string& remedy) {
  if (ended_) return;
  ending_ = {code, reason, remedy};
  ended_.store(true, std::memory_order_release);
  changed_.notify_all();
}

void ThreadHub::arrive_and_wait(int rank, const char* operation) {
  throw_if_ended();
  if (size_ == 1) return;
  const uint64_t phase = phase_.load(std::memory_order_acquire);
  {
    const std::lock_guard lock(mutex_);
    throw_if_ended();  // Before others are let through by a rank that came too late for them.
    ++arrivals_[rank];
    if (++waiting_ == size_) {
      waiting_ = 0;
      phase_.store(phase + 1, std::memory_order_release);
      changed_.notify_all();
      return;
    }
  }
  const auto passed = [&] { return phase_.load(std::memory_order_acquire) != phase || ended_.load(std::memory_order_acquire); };
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
      end(ErrorCode::timeout, fmt::format("{}: waited {} for rank {} to arrive", operation, format_duration(timeout_), missing),
          "comm.timeout if a step takes that long; otherwise see what that rank does");
    }
  }
  if (phase_.load(std::memory_order_acquire) == phase) throw_if_ended();
}

void ThreadHub::meet(int rank, const Posting& posting) {
  postings_[rank] = posting;
  arrive_and_wait(rank, posting.operation);
  const auto other = std::find_if(postings_.begin(), postings_.end(), [&](const Posting& theirs) { return theirs != posting; });
  if (other == postings_.end()) return;
  const auto describe = [](int who, const Posting& what) {
    return fmt::format("rank {} calls {} with {} elements ({})", who, what.operation, what.elements, what.form);
  };
  const std::string difference = describe(rank, posting) + ", " + describe(static_cast<int>(other - postings_.begin()), *other);
  arrive_and_wait(rank, posting.operation);  // All see a difference, and all have read the postings before one is replaced.
  throw Error(ErrorCode::invalid_argument, "comm", difference, "the same collectives in the same order on every rank");
}

void ThreadHub::part(int rank, const char* operation) {
  arrive_and_wait(rank, operation);
  postings_[rank].owner.reset();
}

void ThreadHub::put(int from, int to, int tag, std::vector<std::byte> message) {
  throw_if_ended();
  const std::lock_guard lock(mutex_);
  mail_[{from, to, tag}].push_back(std::move(message));
  changed_.notify_all();
}

std::vector<std::byte> ThreadHub::take(int from, int to, int tag) {
  std::unique_lock lock(mutex_);
  auto& box = mail_[{from, to, tag}];
  if (!changed_.wait_for(lock, timeout_, [&] { return !box.empty() || ended_.load(); }))
    throw Error(ErrorCode::timeout, "comm",
                fmt::format("recv: waited {} for a message of rank {} (tag {})", format_duration(timeout_), from, tag),
                "look whether that rank sends it");
  if (box.empty()) throw_if_ended();
  std::vector<std::byte> message = std::move(box.front());
  box.pop_front();
  return message;
}

void ThreadHub::abort(int rank, const std::string& reason) {
  const std::lock_guard lock(mutex_);
  end(ErrorCode::aborted, fmt::format("rank {} gave up: {}", rank, reason), {});
}

}  // namespace trireme::comm
