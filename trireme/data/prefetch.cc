#include <trireme/data/prefetch.h>

#include <trireme/base/deadline.h>
#include <trireme/base/log.h>

namespace trireme::data {

void Prefetch::set_threads(int threads) {
  {
    const std::lock_guard lock(mutex_);
    active_ = threads;
  }
  for (int thread = static_cast<int>(threads_.size()); thread < threads; ++thread) {
    threads_.emplace_back([this, thread](const std::stop_token& stop) {
      if (world_size_ > 1) set_thread_rank(rank_, world_size_);
      work(stop, thread);
    });
  }
  changed_.notify_all();
  resumed_.notify_all();
}

void Prefetch::work(const std::stop_token& stop, int thread) {
  while (true) {
    Task task;
    {
      std::unique_lock lock(mutex_);
      // Threads that are not active sleep apart, so that no task wakes them.
      while (waiting_.empty() || thread >= active_) {
        const bool is_active = thread < active_;
        const auto has_changed = [&] {
          return (thread < active_) != is_active || (is_active && !waiting_.empty());
        };
        if (!(is_active ? changed_ : resumed_).wait(lock, stop, has_changed)) return;
      }
      task = std::move(waiting_.front());
      waiting_.pop_front();
    }
    task();
  }
}

void Prefetch::add(Task task) {
  window_.push_back(task.get_future());
  {
    const std::lock_guard lock(mutex_);
    waiting_.push_back(std::move(task));
  }
  changed_.notify_one();
}

bool Prefetch::wait(Milliseconds timeout) {
  return window_.front().wait_until(Deadline::after(timeout).at()) == std::future_status::ready;
}

Batch Prefetch::take() {
  std::future<Batch> oldest = std::move(window_.front());
  window_.pop_front();
  return oldest.get();
}

// Tasks begin in their order, so the oldest one has begun if any has.
void Prefetch::drop() {
  const std::lock_guard lock(mutex_);
  if (waiting_.size() == window_.size()) waiting_.pop_front();
  window_.pop_front();
}

void Prefetch::clear() {
  const std::lock_guard lock(mutex_);
  waiting_.clear();
  window_.clear();
}

}  // namespace trireme::data
