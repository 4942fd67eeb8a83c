#include <trireme/train/stop_signal.h>
#include <trireme/watch/stop_request.h>
#include <csignal>
#include <ctime>
#include <iterator>

namespace trireme {
namespace {

constexpr int kSignals[] = {SIGTERM, SIGINT, SIGHUP};
// Process managers may send the first signal twice. Only a later second one means "at once".
constexpr double kSecondAfter = 0.5;

volatile std::sig_atomic_t user_asked = 0;
double first_at = 0;  // The time of the user's first request.
int depth = 0;
struct sigaction previous[std::size(kSignals)];

double now() {
  timespec time{};
  clock_gettime(CLOCK_MONOTONIC, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

extern "C" void trireme_on_stop_signal(int signal, siginfo_t* info, void*) {
  watch::stop_requested = true;
  if (watch::is_own_request(*info)) return;
  if (user_asked && now() - first_at > kSecondAfter) {
    // Two requests mean that the user does not want to wait for a checkpoint.
    ::signal(signal, SIG_DFL);
    ::raise(signal);
  }
  if (!user_asked) first_at = now();
  user_asked = 1;
}

}  // namespace

StopSignal::StopSignal() {
  if (depth++ > 0) return;
  watch::stop_requested = false;
  user_asked = 0;
  struct sigaction action {};
  action.sa_sigaction = trireme_on_stop_signal;
  action.sa_flags = SA_RESTART | SA_SIGINFO;
  sigemptyset(&action.sa_mask);
  for (size_t i = 0; i < std::size(kSignals); ++i) {
    sigaction(kSignals[i], nullptr, &previous[i]);
    // A programme that was started with nohup continues when its terminal is closed.
    if (previous[i].sa_handler != SIG_IGN) sigaction(kSignals[i], &action, nullptr);
  }
}

StopSignal::~StopSignal() {
  if (--depth > 0) return;
  for (size_t i = 0; i < std::size(kSignals); ++i) sigaction(kSignals[i], &previous[i], nullptr);
}

bool StopSignal::requested() { return watch::stop_requested; }

}  // namespace trireme
