// Signals as bytes on a descriptor: one poll() waits for them and for everything else.
#pragma once
#include <csignal>
#include <vector>

namespace trireme::launch {

// While this object lives, SIGINT, SIGTERM, SIGHUP and SIGCHLD of this process are collected
// instead of acted on, and SIGPIPE is ignored. A SIGHUP that was ignored before (nohup) stays
// ignored. At most one object may live at a time; destroy it on the thread that made it.
class SignalWatch {
 public:
  SignalWatch();
  ~SignalWatch();
  SignalWatch(const SignalWatch&) = delete;
  SignalWatch& operator=(const SignalWatch&) = delete;

  int descriptor() const { return read_end_; }  // Readable when a signal has come.
  std::vector<int> take();                      // The new signals, in order. Does not wait.

 private:
  struct Saved {
    int signal;
    struct sigaction action;
  };
  void set(int signal, void (*handler)(int));

  int read_end_ = -1;
  int write_end_ = -1;
  sigset_t mask_before_{};
  std::vector<Saved> saved_;
};

}  // namespace trireme::launch
