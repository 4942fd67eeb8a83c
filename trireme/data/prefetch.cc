#include <trireme/data/prefetch.h>

#include <trireme/base/deadline.h>
#include <trireme/base/log.h>

namespace trireme::data {

Prefetch::Prefetch(int threads, int rank, int world_size) {
  for (int i = 0; i < threads; ++i) {
    threads_.emplace_back([this, rank, world_size](const std::stop_token& stop) {
      if (world_size > 1) set_thread_rank(rank, world_size);
      work(stop);
    });
  }
}

void Prefetch::work(const std::stop_token& stop) {
  while (true) {
    Task task;
    {
      std::unique_lock lock(mutex_);
      if (!changed_.wait(lock, stop, [this] { return !waiting_.empty(); })) return;
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
