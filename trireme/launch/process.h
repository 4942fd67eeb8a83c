// A child process in a process group of its own, with pipes for what it prints.
#pragma once
#include <sys/types.h>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace trireme::launch {

// How a process ended: by itself with an exit code, or by a signal.
struct ProcessEnd {
  bool by_signal = false;
  int code = 0;                  // The exit code, or the signal's number.
  std::string describe() const;  // "exit code 1", "killed by signal 9 (SIGKILL)".
};
// "SIGKILL"; "signal 40" for those without a name.
std::string signal_name(int signal);

class ChildProcess {
 public:
  // Starts `command` (found by PATH) with exactly `environment` ("NAME=value"), /dev/null as
  // standard input, `kept` under its number, and no other descriptor of ours. The kernel kills it
  // with SIGKILL when the calling thread ends, so call from the thread that stays; not if it
  // `outlives_us`. Returns once the program runs. Throws Error(not_found) or
  // Error(invalid_argument) naming a program that cannot be started, Error(io) if the system has no
  // process or descriptor left.
  ChildProcess(const std::vector<std::string>& command, const std::vector<std::string>& environment,
               int kept = -1, bool outlives_us = false);
  ~ChildProcess();  // Kills the whole group, waits for the child, closes what was not released.
  ChildProcess(ChildProcess&& other) noexcept;
  ChildProcess& operator=(ChildProcess&&) = delete;

  pid_t pid() const { return pid_; }
  // Non-blocking read ends of its standard output and error; whoever releases one closes it.
  int release_output() { return std::exchange(output_, -1); }
  int release_error_output() { return std::exchange(error_output_, -1); }

  // To the child and its descendants in its group. Nothing happens after the end was seen.
  void signal_group(int signal);
  // Whether the child has ended; does not wait. What is left of its group is killed then.
  std::optional<ProcessEnd> poll_end();
  bool is_stopped() const;  // By a signal (SIGSTOP, SIGTSTP); not by a debugger.

 private:
  pid_t pid_ = -1;
  int output_ = -1;
  int error_output_ = -1;
  std::optional<ProcessEnd> end_;
};

}  // namespace trireme::launch
