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
#include <list>
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
  ~PairwiseWaits();
  void add(c10d::Work* work);
  void remove(c10d::Work* work);

 private:
  void watch();

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
  void wait();
  // From now on a wait has no time-out: after one, Gloo would close connections that others use.
  void leave();
  void give_up();

 private:
  const char* operation_;
  std::shared_ptr<const WaitLimits> limits_;
  const Deadline begun_ = Deadline::after(limits_->timeout());
  std::shared_ptr<PairwiseWaits> waits_;
  at::Tensor tensor_;  // Lives as long as Gloo reads or writes it.
  c10::intrusive_ptr<c10d::Work> work_;
  std::atomic<bool> waiting_{false}, left_{false}, given_up_{false};
};
using PairwisePtr = std::shared_ptr<Pairwise>;

// The messages of an operation. Any thread.
class Pending {
 public:
  void add(PairwisePtr message);
  void wait();  // One thread at a time, which may also add messages.
  // Call it when no Work waits for them any more.
  void leave() { mark(left_, &Pairwise::leave); }
  // Waits for them end in Error(aborted).
  void give_up() { mark(given_up_, &Pairwise::give_up); }

 private:
  void mark(bool& fact, void (Pairwise::*tell)());

  std::mutex mutex_;
  bool left_ = false, given_up_ = false;
  std::vector<PairwisePtr> messages_;
};

// Starts messages. Works use it too, also after the end of their group.
class Mail {
 public:
  Mail(std::shared_ptr<const WaitLimits> limits, c10::intrusive_ptr<c10d::Backend> backend)
      : limits_(std::move(limits)),
        waits_(std::make_shared<PairwiseWaits>(limits_)),
        backend_(std::move(backend)) {}

  PairwisePtr send(const char* operation, const at::Tensor& tensor, int to, int tag);
  PairwisePtr receive(const char* operation, const at::Tensor& tensor, int from, int tag);
  template <typename Start>
  c10::intrusive_ptr<c10d::Work> started(const char* operation, Start begin) {
    try {
      // Threads of a hybrid group send and receive through one group of leaders.
      const std::lock_guard one_at_a_time(starting_);
      return begin();
    } catch (const std::exception& error) {
      give_reason(*limits_, operation, error.what(), Deadline::after(limits_->timeout()));
    }
  }
  int64_t next_number() { return sent_++; }  // Tells the bodies of messages apart.

  // Goes on with an operation whose Work is gone, until it is over or the group ends. `run` starts
  // the thread that waits for it, or returns the one at work.
  void finish(std::shared_ptr<Pending> pending,
              const std::function<std::shared_future<void>()>& run);
  void end();  // The group ends, and gives up the operations that nobody awaits.

 private:
  PairwisePtr keep(const char* operation, const at::Tensor& tensor,
                   c10::intrusive_ptr<c10d::Work> work);

  struct Left {
    std::shared_ptr<Pending> pending;
    std::shared_future<void> result;
  };
  const std::shared_ptr<const WaitLimits> limits_;
  const std::shared_ptr<PairwiseWaits> waits_;
  const c10::intrusive_ptr<c10d::Backend> backend_;
  std::mutex starting_;
  std::atomic<int64_t> sent_{0};
  std::mutex mutex_;
  std::list<Left> left_;
  bool ended_ = false;
};

// An operation that consists of messages which Gloo can only wait for. It waits in the thread that
// calls wait(), or in a thread of its own if it cannot stand still until then.
class Unhurried : public Work {
 public:
  // `action` waits for the messages.
  Unhurried(std::shared_ptr<Mail> mail, std::shared_ptr<Pending> pending,
            std::function<void()> action, bool needs_thread_of_its_own)
      : mail_(std::move(mail)),
        pending_(std::move(pending)),
        action_(std::move(action)),
        needs_thread_(needs_thread_of_its_own) {}
  ~Unhurried() override;
  void start() override;
  void wait() override;
  bool wait_for(Milliseconds patience) override;

 private:
  const std::shared_future<void>& run(std::launch how);

  std::shared_ptr<Mail> mail_;
  std::shared_ptr<Pending> pending_;
  std::function<void()> action_;
  bool needs_thread_;
  std::shared_future<void> result_;
};

}  // namespace trireme::comm
