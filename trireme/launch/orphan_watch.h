// Watches the launcher of a worker of an elastic job. The worker outlives its launcher: the job
// continues with it, and with a worker as its coordinator.
#pragma once
#include <sys/types.h>
#include <trireme/base/deadline.h>
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <thread>

namespace trireme::launch {

class OrphanWatch {
 public:
  // `launcher` is this process's parent. Once it is gone, the output of this process goes to
  // /dev/null. After `grace` this process sends itself SIGTERM: it saves and ends. If it does not,
  // it kills itself after another `stop_grace`, because no other process would; at once if it was
  // never a member of a generation and so has nothing to save. Without `grace` it continues to its
  // end. From now on a broken pipe raises no signal in this process.
  OrphanWatch(pid_t launcher, std::optional<Milliseconds> grace,
              Milliseconds stop_grace = Milliseconds(30'000));
  ~OrphanWatch();
  OrphanWatch(const OrphanWatch&) = delete;
  void note_membership() { is_member_ = true; }  // Any thread.
  OrphanWatch& operator=(const OrphanWatch&) = delete;

 private:
  void watch();
  bool ends_within(Milliseconds time);  // Waits; true if this object is being destroyed.

  const pid_t launcher_;
  const std::optional<Milliseconds> grace_;
  const Milliseconds stop_grace_;
  std::atomic<bool> is_member_{false};  // It is or was a member.
  std::mutex mutex_;
  std::condition_variable changed_;
  bool ending_ = false;
  std::thread thread_;
};

}  // namespace trireme::launch
