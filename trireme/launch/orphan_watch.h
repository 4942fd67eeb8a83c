// A worker of an elastic job outlives its launcher: the job goes on with it, and with a worker as
// its coordinator.
#pragma once
#include <sys/types.h>
#include <trireme/base/deadline.h>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <thread>

namespace trireme::launch {

class OrphanWatch {
 public:
  // `launcher`: this process's parent. Once it is gone, what this process prints goes nowhere.
  // `grace` later this process asks itself to stop (SIGTERM: it saves, and ends), and `stop_grace`
  // after that it kills itself, as nobody else would end it. Without `grace` it goes on to its end.
  // From now on a broken pipe raises no signal here.
  OrphanWatch(pid_t launcher, std::optional<Milliseconds> grace,
              Milliseconds stop_grace = Milliseconds(30'000));
  ~OrphanWatch();
  OrphanWatch(const OrphanWatch&) = delete;
  OrphanWatch& operator=(const OrphanWatch&) = delete;

 private:
  void watch();
  bool ends_within(Milliseconds time);  // This object.

  const pid_t launcher_;
  const std::optional<Milliseconds> grace_;
  const Milliseconds stop_grace_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool ending_ = false;
  std::thread thread_;
};

}  // namespace trireme::launch
