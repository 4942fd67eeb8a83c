// Runs jobs on threads and hands their batches out in the order in which the jobs were given.
#pragma once
#include <trireme/data/loader.h>
#include <condition_variable>
#include <deque>
#include <future>
#include <mutex>
#include <thread>
#include <vector>

namespace trireme::data {

// All methods are for one thread, the owner's. The destructor drops jobs that have not begun and
// waits for those that have.
class Prefetch {
 public:
  using Job = std::packaged_task<Batch()>;
  // The threads log and throw as `rank` of `world_size`.
  Prefetch(int threads, int rank, int world_size);
  ~Prefetch() { clear(); }

  void add(Job job);
  size_t size() const { return window_.size(); }  // Jobs added and not taken.
  // False if the oldest job is not done in time. Needs size() > 0.
  bool wait(Milliseconds timeout);
  Batch take();  // The oldest job's batch, or its exception.
  void clear();  // Forgets all jobs. A running one finishes unseen.

 private:
  void work(const std::stop_token& stop);

  std::deque<std::future<Batch>> window_;
  std::mutex mutex_;  // Guards waiting_.
  std::condition_variable_any changed_;
  std::deque<Job> waiting_;
  std::vector<std::jthread> threads_;  // Last: ends before what it uses.
};

}  // namespace trireme::data
