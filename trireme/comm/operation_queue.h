// Runs the operations of one rank one after another, in the order in which they were added. Each
// runs in the thread that waits for it or, if it was started, in a thread of the queue. A small
// operation that is waited for at once needs no change of threads.
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
  // Waits for the operation in progress; later operations end in Error(aborted).
  ~OperationQueue();
  OperationQueue(const OperationQueue&) = delete;
  OperationQueue& operator=(const OperationQueue&) = delete;

  // An exception from `action` is thrown by the Work's wait(). One thread at a time.
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
    void run_started();  // The body of the thread.
    void start(Operation& operation);
    void wait(Operation& operation);
    bool wait_for(Operation& operation, Milliseconds patience);
  };
  class QueuedWork;

  std::shared_ptr<State> state_;
};

}  // namespace trireme::comm
