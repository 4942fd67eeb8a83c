// On a signal, a process writes the stack of its main thread to standard error, and continues its
// work.
#pragma once
#include <sys/types.h>
#include <csignal>

namespace trireme {

inline constexpr int kStackDumpSignal = SIGUSR2;

// Handles the signal from now on. Call it once in a process. If the process has another handler
// already, that one stays, and nothing is dumped.
void dump_stack_on_signal();
// Whether a process of this host handles the signal. One that does not would die of it.
bool dumps_stack_on_signal(pid_t process);

}  // namespace trireme
