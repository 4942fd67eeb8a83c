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
  // `launcher`: this process's parent. Once it is gone, what this process prints goes nowhere;
  // `grace` later it asks itself to stop (SIGTERM: it saves, and ends). Nobody else would end it,
  // so it is killed half a minute after that, or at once if it has never been a member of a
  // generation and so has nothing to save. Without `grace` it goes on to its end. From now on a
  // broken pipe raises no signal here.
  OrphanWatch(pid_t launcher, std::optional<Milliseconds> grace);
  ~OrphanWatch();
  OrphanWatch(const OrphanWatch&) = delete;
  void note_membership() { is_member_ = true; }  // Any thread.
  OrphanWatch& operator=(const OrphanWatch&) = delete;

 private:
  void watch();
  bool ends_within(Milliseconds time);  // This object.

  const pid_t launcher_;
  const std::optional<Milliseconds> grace_;
  std::atomic<bool> is_member_{false};  // Or was one.
  std::mutex mutex_;
  std::condition_variable changed_;
  bool ending_ = false;
  std::thread thread_;
};

}  // namespace trireme::launch
