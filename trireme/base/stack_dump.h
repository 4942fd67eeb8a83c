// A process that is asked by a signal where it is: the main thread's stack goes to standard error,
// and work goes on.
#pragma once
#include <sys/types.h>
#include <csignal>

namespace trireme {

inline constexpr int kStackDumpSignal = SIGUSR2;

// From now on. Once a process; a handler that is there already stays, and then nothing is dumped.
void dump_stack_on_signal();
// Whether a process of this host handles the signal, so that it does not die of it.
bool dumps_stack_on_signal(pid_t process);

}  // namespace trireme
