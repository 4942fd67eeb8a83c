// A worker of an elastic job outlives its launcher: the job goes on with it, and with a worker as
// its coordinator.
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
  // `launcher`: this process's parent. Once it is gone, the output of this process goes nowhere.
  // `grace` later this process asks itself to stop (SIGTERM: it saves and ends). As no other
  // process would end it, it kills itself `stop_grace` after that, or at once if it has never been
  // a member of a generation and so has nothing to save. Without `grace` it continues to its end.
  // From now on a broken pipe raises no signal here.
  OrphanWatch(pid_t launcher, std::optional<Milliseconds> grace,
              Milliseconds stop_grace = Milliseconds(30'000));
  ~OrphanWatch();
  OrphanWatch(const OrphanWatch&) = delete;
  void note_membership() { is_member_ = true; }  // Any thread.
  OrphanWatch& operator=(const OrphanWatch&) = delete;

 private:
  void watch();
  bool ends_within(Milliseconds time);  // This object.

  const pid_t launcher_;
  const std::optional<Milliseconds> grace_;
  const Milliseconds stop_grace_;
  std::atomic<bool> is_member_{false};  // Or was one.
  std::mutex mutex_;
  std::condition_variable changed_;
  bool ending_ = false;
  std::thread thread_;
};

}  // namespace trireme::launch
