#include <csignal>
#include <trireme/train/stop_signal.h>

namespace trireme {
namespace {

volatile std::sig_atomic_t stop_requested = 0;
struct sigaction previous_term, previous_int;

extern "C" void trireme_on_stop_signal(int signal) {
  if (stop_requested) {
    // Asked twice: whoever asks does not want to wait for a checkpoint.
    ::signal(signal, SIG_DFL);
    ::raise(signal);
  }
  stop_requested = 1;
}

}  // namespace

StopSignal::StopSignal() {
  stop_requested = 0;
  struct sigaction action {};
  action.sa_handler = trireme_on_stop_signal;
  action.sa_flags = SA_RESTART;
  sigemptyset(&action.sa_mask);
  sigaction(SIGTERM, &action, &previous_term);
  sigaction(SIGINT, &action, &previous_int);
}

StopSignal::~StopSignal() {
  sigaction(SIGTERM, &previous_term, nullptr);
  sigaction(SIGINT, &previous_int, nullptr);
}

bool StopSignal::requested() { return stop_requested != 0; }

}  // namespace trireme
