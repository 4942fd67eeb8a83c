// One rank's operations, run one after another in the order they were added: each in the thread
// that waits for it or, once it was started, in a thread of the queue's own. A small operation that
// is waited for at once costs no change of threads.
#pragma once
#include <trireme/comm/group.h>
#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

namespace trireme::comm {

class OperationQueue {
 public:
  OperationQueue() : state_(std::make_shared<State>()) {}
  ~OperationQueue();  // Waits for the operation under way; those behind it end in Error(aborted).
  OperationQueue(const OperationQueue&) = delete;
  OperationQueue& operator=(const OperationQueue&) = delete;

  // What `action` throws is thrown by the Work's wait(). One thread at a time.
  WorkPtr add(std::function<void()> action);

 private:
  struct Operation {
    std::function<void()> action;
    bool started = false;
    bool done = false;
    std::exception_ptr error;
  };
  struct State {
    std::mutex mutex;
    std::condition_variable changed;
    std::deque<std::shared_ptr<Operation>> waiting;
    bool running = false;
    bool ended = false;
    std::thread thread;

    void run_next(std::unique_lock<std::mutex>& lock);
    void run_started();  // The thread's body.
    void start(Operation& operation);
    void wait(Operation& operation);
  };
  class QueuedWork;

  std::shared_ptr<State> state_;
};

}  // namespace trireme::comm
