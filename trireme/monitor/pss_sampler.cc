#include <trireme/monitor/resources.h>
#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <csignal>
#include <mutex>
#include <thread>

namespace trireme::monitor {

struct PssSampler::Impl {
  std::mutex mutex;
  std::condition_variable ended;
  bool ending = false;
  int64_t peak = 0;
  std::thread thread;

  void sample() {
    // In a large process this takes the kernel milliseconds, so it happens outside of the lock.
    const int64_t now = process_pss_bytes();
    const std::lock_guard lock(mutex);
    peak = std::max(peak, now);
  }
  void run() {
    std::unique_lock lock(mutex);
    while (!ending) {
      lock.unlock();
      sample();
      lock.lock();
      ended.wait_for(lock, std::chrono::seconds(1), [&] { return ending; });
    }
  }
};

PssSampler::PssSampler() : impl_(std::make_unique<Impl>()) {
  // The thread inherits a mask that blocks all signals. Signals belong to other threads, which may
  // wait to be interrupted by one.
  sigset_t all, before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  impl_->thread = std::thread([impl = impl_.get()] { impl->run(); });
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

PssSampler::~PssSampler() {
  {
    const std::lock_guard lock(impl_->mutex);
    impl_->ending = true;
  }
  impl_->ended.notify_all();
  impl_->thread.join();
}

int64_t PssSampler::peak() {
  impl_->sample();
  const std::lock_guard lock(impl_->mutex);
  return impl_->peak;
}

}  // namespace trireme::monitor
