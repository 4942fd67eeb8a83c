// The request to a worker to save and to end, as the worker hears it.
//
// It is SIGTERM. A user who sends it twice does not want to wait for a checkpoint. Trireme's own
// request to a worker that has lost its launcher may come before or after the user's, so it
// carries a mark.
#pragma once
#include <sys/types.h>
#include <atomic>
#include <csignal>

namespace trireme::watch {

inline constexpr int kMarkOfOwnRequest = 0x74726972;

inline void ask_to_stop(pid_t process) {
  ::sigqueue(process, SIGTERM, sigval{.sival_int = kMarkOfOwnRequest});
}
// Whether ask_to_stop() sent this signal. A signal handler may call it.
inline bool is_own_request(const siginfo_t& signal) {
  return signal.si_code == SI_QUEUE && signal.si_value.sival_int == kMarkOfOwnRequest;
}

// Whether this process was asked to stop (train/stop_signal.h).
inline std::atomic<bool> stop_requested{false};
static_assert(std::atomic<bool>::is_always_lock_free);  // A signal handler writes it.

}  // namespace trireme::watch
