#include <trireme/base/error.h>
#include <trireme/comm/operation_queue.h>
#include <utility>

namespace trireme::comm {

class OperationQueue::QueuedWork : public Work {
 public:
  QueuedWork(std::shared_ptr<State> state, std::shared_ptr<Operation> operation)
      : state_(std::move(state)), operation_(std::move(operation)) {}
  void start() override { state_->start(*operation_); }
  void wait() override { state_->wait(*operation_); }
  bool wait_for(Milliseconds patience) override {
    state_->start(*operation_);
    return state_->wait_for(*operation_, patience);
  }

 private:
  std::shared_ptr<State> state_;
  std::shared_ptr<Operation> operation_;
};

WorkPtr OperationQueue::add(std::function<void()> action) {
  auto operation = std::make_shared<Operation>();
  operation->action = std::move(action);
  const std::lock_guard lock(state_->mutex);
  state_->waiting.push_back(operation);
  return std::make_unique<QueuedWork>(state_, std::move(operation));
}

OperationQueue::~OperationQueue() {
  {
    const std::lock_guard lock(state_->mutex);
    state_->ended = true;
    const auto given_up = std::make_exception_ptr(
        Error(ErrorCode::aborted, "comm", "the group ended before this operation began"));
    for (const auto& operation : std::exchange(state_->waiting, {})) {
      operation->error = given_up;
      operation->done = true;
      operation->action = nullptr;
    }
    state_->changed.notify_all();
  }
  if (state_->thread.joinable()) state_->thread.join();
}

void OperationQueue::State::run_next(std::unique_lock<std::mutex>& lock) {
  const std::shared_ptr<Operation> operation = std::move(waiting.front());
  waiting.pop_front();
  running = true;
  lock.unlock();
  std::exception_ptr error;
  try {
    operation->action();
  } catch (...) {
    error = std::current_exception();
  }
  // Releases the tensors before a waiting thread sees that the operation is done.
  operation->action = nullptr;
  lock.lock();
  operation->error = error;
  operation->done = true;
  running = false;
  changed.notify_all();
}

void OperationQueue::State::run_started() {
  std::unique_lock lock(mutex);
  for (;;) {
    changed.wait(lock, [this] {
      return ended || (!running && !waiting.empty() && waiting.front()->started);
    });
    if (ended) return;
    run_next(lock);
  }
}

void OperationQueue::State::start(Operation& operation) {
  const std::lock_guard lock(mutex);
  operation.started = true;
  if (!thread.joinable() && !ended) thread = std::thread([this] { run_started(); });
  changed.notify_all();
}

bool OperationQueue::State::wait_for(Operation& operation, Milliseconds patience) {
  std::unique_lock lock(mutex);
  if (!changed.wait_until(lock, Deadline::after(patience).at(), [&] { return operation.done; }))
    return false;
  if (operation.error) std::rethrow_exception(operation.error);
  return true;
}

void OperationQueue::State::wait(Operation& operation) {
  std::unique_lock lock(mutex);
  while (!operation.done) {
    if (!running && !waiting.empty())
      run_next(lock);
    else
      changed.wait(lock);
  }
  if (operation.error) std::rethrow_exception(operation.error);
}

}  // namespace trireme::comm
