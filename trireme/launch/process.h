// A child process in a process group of its own, with pipes for what it prints.
#pragma once
#include <sys/types.h>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace trireme::launch {

// The end of a process: by itself with an exit code, or by a signal.
struct ProcessEnd {
  bool by_signal = false;
  int code = 0;                  // The exit code, or the signal's number.
  std::string describe() const;  // "exit code 1", "killed by signal 9 (SIGKILL)".
};
// Returns "SIGKILL", or "signal 40" for a signal without a name.
std::string signal_name(int signal);

class ChildProcess {
 public:
  // Starts `command` (found by PATH) with exactly `environment` ("NAME=value") and /dev/null as
  // standard input. The child inherits the descriptor `kept` under its number, and no other.
  // Unless it `outlives_us`, the kernel kills it with SIGKILL when the calling thread ends: call
  // this from the thread that stays. Returns once the programme runs. Throws Error(not_found) or
  // Error(invalid_argument) naming a programme that cannot be started, Error(io) if the system has
  // no process or descriptor left.
  ChildProcess(const std::vector<std::string>& command,
               const std::vector<std::string>& environment, int kept = -1,
               bool outlives_us = false);
  ~ChildProcess();  // Kills the group, waits for the child, closes the pipes not released.
  ChildProcess(ChildProcess&& other) noexcept;
  ChildProcess& operator=(ChildProcess&&) = delete;

  pid_t pid() const { return pid_; }
  // The non-blocking read ends of its standard output and error. The caller must close them.
  int release_output() { return std::exchange(output_, -1); }
  int release_error_output() { return std::exchange(error_output_, -1); }

  // Sends the signal to the child and the descendants in its group. Does nothing once poll_end()
  // has returned the end.
  void signal_group(int signal);
  // Returns the child's end if it has ended, and kills the rest of its group. Does not wait.
  std::optional<ProcessEnd> poll_end();
  bool is_stopped() const;  // True if a signal stopped it (SIGSTOP, SIGTSTP), not a debugger.

 private:
  pid_t pid_ = -1;
  int output_ = -1;
  int error_output_ = -1;
  std::optional<ProcessEnd> end_;
};

// The variables of this process, "NAME=value".
std::vector<std::string> environment_of_this_process();

}  // namespace trireme::launch
