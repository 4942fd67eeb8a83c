// The messages of a c10d group, and works that consist of them.
#pragma once
#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <trireme/base/error.h>
#include <trireme/comm/group.h>
#include <trireme/comm/wait_limits.h>
#include <atomic>
#include <condition_variable>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

namespace trireme::comm {

// The interval at which a wait checks whether a worker was lost.
inline constexpr Milliseconds kWorkSlice{100};

// Turns an exception of c10d into one of our errors. `since` is the deadline that began with the
// operation: after it, the exception is c10d's own time-out.
[[noreturn]] void give_reason(const WaitLimits& limits, const char* operation,
                              const std::string& what, Deadline since);

// The point-to-point waits in progress. They cannot go in slices, since a time-out of Gloo closes
// every connection; a thread of ours aborts them when a worker is lost.
class PairwiseWaits {
 public:
  explicit PairwiseWaits(std::shared_ptr<const WaitLimits> limits)
      : limits_(std::move(limits)), watcher_([this] { watch(); }) {}
  ~PairwiseWaits() {
    {
      const std::lock_guard lock(mutex_);
      ended_ = true;
    }
    changed_.notify_all();
    watcher_.join();
  }
  void add(c10d::Work* work) {
    const std::lock_guard lock(mutex_);
    waits_.insert(work);
  }
  void remove(c10d::Work* work) {
    const std::lock_guard lock(mutex_);
    waits_.erase(work);
  }

 private:
  void watch() {
    std::unique_lock lock(mutex_);
    while (!changed_.wait_for(lock, kWorkSlice, [this] { return ended_; })) {
      if (!limits_->is_lost()) continue;
      for (c10d::Work* work : waits_) work->abort();
    }
  }

  std::shared_ptr<const WaitLimits> limits_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::set<c10d::Work*> waits_;
  bool ended_ = false;
  std::thread watcher_;
};

// A message in progress.
class Pairwise {
 public:
  Pairwise(const char* operation, std::shared_ptr<const WaitLimits> limits,
           std::shared_ptr<PairwiseWaits> waits, at::Tensor tensor,
           c10::intrusive_ptr<c10d::Work> work)
      : operation_(operation),
        limits_(std::move(limits)),
        waits_(std::move(waits)),
        tensor_(std::move(tensor)),
        work_(std::move(work)) {}
  void wait() {
    limits_->throw_if_lost();
    waits_->add(work_.get());
    bool done = false;
    std::string what = "the wait was given up";
    const Deadline deadline = Deadline::after(limits_->timeout());
    try {
      done = work_->wait(limits_->timeout());
    } catch (const std::exception& error) {
      what = error.what();
    }
    waits_->remove(work_.get());
    if (done) return;
    if (given_up_) throw Error(ErrorCode::aborted, "comm", "nobody waits for this message");
    if (deadline.expired()) limits_->time_out(operation_, "the other ranks");
    give_reason(*limits_, operation_, what, begun_);
  }
  void give_up() {
    given_up_ = true;
    work_->abort();
  }

 private:
  const char* operation_;
  std::shared_ptr<const WaitLimits> limits_;
  const Deadline begun_ = Deadline::after(limits_->timeout());
  std::shared_ptr<PairwiseWaits> waits_;
  at::Tensor tensor_;  // Lives as long as Gloo reads or writes it.
  c10::intrusive_ptr<c10d::Work> work_;
  std::atomic<bool> given_up_{false};
};
using PairwisePtr = std::shared_ptr<Pairwise>;

// Starts messages. Works use it too, also after the end of their group.
struct Mail {
  std::shared_ptr<const WaitLimits> limits;
  std::shared_ptr<PairwiseWaits> waits;
  c10::intrusive_ptr<c10d::Backend> backend;
  std::mutex starting{};
  std::atomic<int64_t> sent{0};  // Messages; their numbers tell their bodies apart.

  PairwisePtr send(const char* operation, const at::Tensor& tensor, int to, int tag) {
    std::vector<at::Tensor> tensors{tensor};
    return keep(operation, tensor,
                started(operation, [&] { return backend->send(tensors, to, tag); }));
  }
  PairwisePtr receive(const char* operation, const at::Tensor& tensor, int from, int tag) {
    std::vector<at::Tensor> tensors{tensor};
    return keep(operation, tensor,
                started(operation, [&] { return backend->recv(tensors, from, tag); }));
  }
  template <typename Start>
  c10::intrusive_ptr<c10d::Work> started(const char* operation, Start begin) {
    try {
      // Threads of a hybrid group send and receive through one group of leaders.
      const std::lock_guard one_at_a_time(starting);
      return begin();
    } catch (const std::exception& error) {
      give_reason(*limits, operation, error.what(), Deadline::after(limits->timeout()));
    }
  }

 private:
  PairwisePtr keep(const char* operation, const at::Tensor& tensor,
                   c10::intrusive_ptr<c10d::Work> work) {
    return std::make_shared<Pairwise>(operation, limits, waits, tensor, std::move(work));
  }
};

// An operation that consists of messages which Gloo can only wait for. It waits in the thread that
// calls wait(), or in a thread of its own if it cannot stand still until then.
class Unhurried : public Work {
 public:
  // The messages of an operation, which can be given up.
  struct Pending {
    std::mutex mutex;
    bool given_up = false;
    std::vector<PairwisePtr> messages;
    void add(PairwisePtr message) {
      const std::lock_guard lock(mutex);
      if (given_up) message->give_up();
      messages.push_back(std::move(message));
    }
    void give_up() {
      const std::lock_guard lock(mutex);
      given_up = true;
      for (const PairwisePtr& message : messages) message->give_up();
    }
    void wait() {
      for (const PairwisePtr& message : messages) message->wait();
    }
  };
  // `action` waits for the messages.
  Unhurried(std::shared_ptr<Pending> pending, std::function<void()> action,
            bool needs_thread_of_its_own)
      : pending_(std::move(pending)),
        action_(std::move(action)),
        needs_thread_(needs_thread_of_its_own) {}
  ~Unhurried() override {
    if (result_.valid() && result_.wait_for(Milliseconds(0)) != std::future_status::ready)
      pending_->give_up();
  }
  void start() override {
    if (needs_thread_) run(std::launch::async);
  }
  void wait() override {
    run(std::launch::deferred);
    result_.get();
  }
  bool wait_for(Milliseconds patience) override {
    run(std::launch::async);
    if (result_.wait_for(patience) == std::future_status::timeout) return false;
    result_.get();
    return true;
  }

 private:
  void run(std::launch how) {
    if (!result_.valid()) result_ = std::async(how, action_).share();
  }

  std::shared_ptr<Pending> pending_;
  std::function<void()> action_;
  bool needs_thread_;
  std::shared_future<void> result_;
};

}  // namespace trireme::comm
