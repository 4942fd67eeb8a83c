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

namespace trireme::watch {

class OrphanWatch {
 public:
  // `launcher` is this process's parent. Once it is gone, the output of this process goes to
  // /dev/null. After `grace` this process asks itself to stop (stop_request.h), so that it saves
  // and ends. If it still lives after `stop_grace`, it kills itself, because no other process
  // would. A process that was never a member of a generation has nothing to save, and is killed
  // within half a second. A member continues to its end if the job has other launchers, and so
  // does any process without `grace`. From now on a broken pipe raises no signal in this process.
  OrphanWatch(pid_t launcher, std::optional<Milliseconds> grace,
              Milliseconds stop_grace = Milliseconds(30'000));
  ~OrphanWatch();
  OrphanWatch(const OrphanWatch&) = delete;
  // Notes that this process is a member of a job that may have other launchers. Any thread.
  void note_membership(bool has_other_launchers) {
    has_other_launchers_ = has_other_launchers;
    is_member_ = true;
  }
  OrphanWatch& operator=(const OrphanWatch&) = delete;

 private:
  void watch();
  bool ends_within(Milliseconds time);  // Waits; true if this object is being destroyed.

  const pid_t launcher_;
  const std::optional<Milliseconds> grace_;
  const Milliseconds stop_grace_;
  std::atomic<bool> has_other_launchers_{false};
  std::atomic<bool> is_member_{false};  // It is or was a member.
  std::mutex mutex_;
  std::condition_variable changed_;
  bool ending_ = false;
  std::thread thread_;
};

}  // namespace trireme::watch
