// Runs tasks on threads, and returns their batches in the order in which the tasks were added.
#pragma once
#include <trireme/data/loader.h>
#include <condition_variable>
#include <deque>
#include <future>
#include <mutex>
#include <thread>
#include <vector>

namespace trireme::data {

// Only the thread of the owner may call the methods. The destructor drops tasks that have not
// begun, and waits for those that have.
class Prefetch {
 public:
  using Task = std::packaged_task<Batch()>;
  // Log lines and errors of the threads carry `rank` of `world_size`.
  Prefetch(int threads, int rank, int world_size) : rank_(rank), world_size_(world_size) {
    set_threads(threads);
  }
  ~Prefetch() { clear(); }

  // The number of threads that take tasks from now on. Further ones end the tasks that they have,
  // and sleep.
  void set_threads(int threads);

  void add(Task task);
  size_t size() const { return window_.size(); }  // Tasks that were added and not yet taken.
  // False if the oldest task is not done in time. size() must be above 0.
  bool wait(Milliseconds timeout);
  Batch take();  // The batch of the oldest task, or its exception.
  void drop();   // Drops the oldest task.
  void clear();  // Drops all tasks. The result of a running task is lost.

 private:
  void work(const std::stop_token& stop, int thread);

  const int rank_, world_size_;
  std::deque<std::future<Batch>> window_;
  std::mutex mutex_;  // Guards waiting_ and active_.
  std::condition_variable_any changed_, resumed_;
  std::deque<Task> waiting_;
  int active_ = 0;  // The threads in front of this one take tasks.
  // The last member: the threads end before the members that they use.
  std::vector<std::jthread> threads_;
};

}  // namespace trireme::data
