#include <trireme/train/stop_signal.h>
#include <unistd.h>
#include <csignal>
#include <ctime>
#include <iterator>

namespace trireme {
namespace {

constexpr int kSignals[] = {SIGTERM, SIGINT, SIGHUP};
// Process managers may send the first signal twice. Only a later second one means "at once".
constexpr double kSecondAfter = 0.5;

volatile std::sig_atomic_t stop_requested = 0;
double first_at = 0;
int depth = 0;
struct sigaction previous[std::size(kSignals)];

double now() {
  timespec time{};
  clock_gettime(CLOCK_MONOTONIC, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

extern "C" void trireme_on_stop_signal(int signal, siginfo_t* info, void*) {
  // A worker without a launcher signals itself (launch/orphan_watch.h), possibly
  // after an earlier request.
  const bool from_itself = info->si_code <= 0 && info->si_pid == ::getpid();
  if (stop_requested && !from_itself && now() - first_at > kSecondAfter) {
    // Two requests mean that the sender does not want to wait for a checkpoint.
    ::signal(signal, SIG_DFL);
    ::raise(signal);
  }
  if (!stop_requested) first_at = now();
  stop_requested = 1;
}

}  // namespace

StopSignal::StopSignal() {
  if (depth++ > 0) return;
  stop_requested = 0;
  struct sigaction action {};
  action.sa_sigaction = trireme_on_stop_signal;
  action.sa_flags = SA_RESTART | SA_SIGINFO;
  sigemptyset(&action.sa_mask);
  for (size_t i = 0; i < std::size(kSignals); ++i) {
    sigaction(kSignals[i], nullptr, &previous[i]);
    // A program that was started with nohup continues when its terminal is closed.
    if (previous[i].sa_handler != SIG_IGN) sigaction(kSignals[i], &action, nullptr);
  }
}

StopSignal::~StopSignal() {
  if (--depth > 0) return;
  for (size_t i = 0; i < std::size(kSignals); ++i) sigaction(kSignals[i], &previous[i], nullptr);
}

bool StopSignal::requested() { return stop_requested != 0; }

}  // namespace trireme
