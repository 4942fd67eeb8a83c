#include <trireme/launch/signals.h>

#include <fcntl.h>
#include <fmt/format.h>
#include <trireme/base/error.h>
#include <unistd.h>
#include <atomic>
#include <cerrno>
#include <cstring>

namespace trireme::launch {
namespace {

std::atomic<int> write_end_of_handler{-1};

void collect(int signal) {
  const int errno_before = errno;
  const unsigned char byte = static_cast<unsigned char>(signal);
  [[maybe_unused]] const auto written = ::write(write_end_of_handler.load(), &byte, 1);
  errno = errno_before;
}

}  // namespace

SignalWatch::SignalWatch() {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0) {
    throw Error(ErrorCode::io, "launch",
                fmt::format("no pipe for signals: {}", std::strerror(errno)),
                "a higher limit of open files (ulimit -n)");
  }
  read_end_ = ends[0];
  write_end_ = ends[1];
  write_end_of_handler = write_end_;
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGCHLD}) set(signal, collect);
  set(SIGPIPE, SIG_IGN);

  sigset_t wanted;
  sigemptyset(&wanted);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGCHLD}) sigaddset(&wanted, signal);
  ::pthread_sigmask(SIG_UNBLOCK, &wanted, &mask_before_);
}

SignalWatch::~SignalWatch() {
  ::pthread_sigmask(SIG_SETMASK, &mask_before_, nullptr);
  for (const Saved& saved : saved_) ::sigaction(saved.signal, &saved.action, nullptr);
  write_end_of_handler = -1;
  ::close(read_end_);
  ::close(write_end_);
}

void SignalWatch::set(int signal, void (*handler)(int)) {
  struct sigaction before {};
  ::sigaction(signal, nullptr, &before);
  if (signal == SIGHUP && before.sa_handler == SIG_IGN) return;
  saved_.push_back({signal, before});
  struct sigaction action {};
  action.sa_handler = handler;
  action.sa_flags = SA_RESTART;  // A signal must not interrupt the calls of other threads.
  sigemptyset(&action.sa_mask);
  ::sigaction(signal, &action, nullptr);
}

std::vector<int> SignalWatch::take() {
  std::vector<int> signals;
  unsigned char bytes[256];
  for (ssize_t got = 0; (got = ::read(read_end_, bytes, sizeof bytes)) > 0;)
    signals.insert(signals.end(), bytes, bytes + got);
  return signals;
}

}  // namespace trireme::launch
