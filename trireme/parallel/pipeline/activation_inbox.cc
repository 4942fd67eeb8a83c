#include <ATen/core/Tensor.h>

#include <trireme/base/log.h>
#include <trireme/parallel/pipeline/activation_inbox.h>
#include <trireme/watch/phase_marks.h>
#include <utility>

namespace trireme::pipeline {
namespace {

// The messages that may wait in memory until they are taken.
constexpr size_t kAhead = 1;
// The interval at which a receive looks whether the inbox ends.
constexpr Milliseconds kEndSlice{20};

struct InboxEnded {};

}  // namespace

ActivationInbox::ActivationInbox(std::shared_ptr<Group> stages, int from, const Group& all)
    : stages_(std::move(stages)),
      from_(from),
      thread_([this, rank = all.rank(), ranks = all.size()] {
        set_thread_rank(rank, ranks);
        run();
      }) {}

ActivationInbox::~ActivationInbox() {
  {
    const std::lock_guard lock(mutex_);
    ended_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void ActivationInbox::begin_pass(std::vector<int> after) {
  const std::lock_guard lock(mutex_);
  expected_.assign(after.begin(), after.end());
  sent_ = 0;
  changed_.notify_all();
}

void ActivationInbox::count_sent() {
  const std::lock_guard lock(mutex_);
  ++sent_;
  changed_.notify_all();
}

bool ActivationInbox::expects() {
  const std::lock_guard lock(mutex_);
  return error_ || !arrived_.empty() || !expected_.empty();
}

ActivationMessage ActivationInbox::take() {
  std::unique_lock lock(mutex_);
  if (arrived_.empty() && !error_) {
    // The receive of the other thread has the group's time-out.
    const watch::AmongSomeRanks among(true);
    const watch::CollectiveMark mark("recv");
    is_awaited_ = true;
    changed_.notify_all();
    changed_.wait(lock, [&] { return !arrived_.empty() || error_; });
    is_awaited_ = false;
  }
  if (arrived_.empty()) std::rethrow_exception(error_);
  ActivationMessage message = std::move(arrived_.front());
  arrived_.pop_front();
  changed_.notify_all();
  return message;
}

bool ActivationInbox::may_receive() const {
  if (expected_.empty() || arrived_.size() >= kAhead) return false;
  return is_awaited_ || expected_.front() <= sent_;
}

void ActivationInbox::await(Work& work) {
  while (!work.wait_for(kEndSlice)) {
    const std::lock_guard lock(mutex_);
    if (ended_) throw InboxEnded();
  }
}

void ActivationInbox::run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return ended_ || may_receive(); });
    if (ended_) return;
    lock.unlock();
    ActivationMessage message;
    std::exception_ptr error;
    try {
      message = receive_message(*stages_, from_, [this](Work& work) { await(work); });
    } catch (const InboxEnded&) {
      return;
    } catch (...) {
      error = std::current_exception();
    }
    lock.lock();
    if (error)
      error_ = error;
    else
      arrived_.push_back(std::move(message));
    if (!expected_.empty()) expected_.pop_front();
    changed_.notify_all();
    if (error) return;
  }
}

}  // namespace trireme::pipeline
