// A supervisor in a process of its own. A test can read its output, send it signals and kill it.
#pragma once
#include <gtest/gtest.h>

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <trireme/base/error.h>
#include <trireme/launch/supervisor.h>
#include <csignal>
#include <cstdlib>
#include <string>

#include "../net/free_port.h"
#include "../watch/processes.h"

namespace trireme::tests {

inline launch::SupervisorOptions shell_job(int workers, const std::string& script) {
  launch::SupervisorOptions options;
  options.workers = workers;
  options.command = {"sh", "-c", script};
  options.loss_grace = Milliseconds(100);
  return options;
}

class ForkedJob {
 public:
  explicit ForkedJob(const launch::SupervisorOptions& options, const std::string& token = {}) {
    int output[2];
    int error_output[2];
    EXPECT_EQ(::pipe2(output, O_CLOEXEC), 0);
    EXPECT_EQ(::pipe2(error_output, O_CLOEXEC), 0);
    pid_ = ::fork();
    if (pid_ == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      ::dup2(output[1], STDOUT_FILENO);
      ::dup2(error_output[1], STDERR_FILENO);
      for (const int fd : {output[0], output[1], error_output[0], error_output[1]}) ::close(fd);
      if (!token.empty()) ::setenv("TRIREME_JOB_TOKEN", token.c_str(), 1);
      ::_exit(exit_code_of_job(options));
    }
    ::close(output[1]);
    ::close(error_output[1]);
    output_ = output[0];
    error_output_ = error_output[0];
  }
  ~ForkedJob() {
    if (pid_ > 0) ::kill(pid_, SIGKILL);
    if (pid_ > 0) ::waitpid(pid_, nullptr, 0);
    ::close(output_);
    ::close(error_output_);
  }
  ForkedJob(const ForkedJob&) = delete;
  ForkedJob& operator=(const ForkedJob&) = delete;

  pid_t pid() const { return pid_; }
  void signal(int number) const { ::kill(pid_, number); }

  // Reads until the whole output so far contains `text` `count` times. Fails the test at the
  // deadline.
  const std::string& wait_for(const std::string& text, int count = 1) {
    printed += read_until(output_, [&](const std::string& more) {
      return occurrences(printed + more, text) >= count;
    });
    EXPECT_GE(occurrences(printed, text), count)
        << "missing: " << text << "\nprinted: " << printed;
    return printed;
  }
  // The same for the standard error.
  void wait_for_complaint(const std::string& text) {
    complained += read_until(error_output_, [&](const std::string& more) {
      return occurrences(complained + more, text) > 0;
    });
    EXPECT_GT(occurrences(complained, text), 0) << "missing: " << text << "\n" << complained;
  }
  // Returns the number printed after `text`.
  int number_after(const std::string& text) {
    wait_for(text);
    printed += read_until(output_, [&](const std::string& more) {
      const std::string all = printed + more;
      return all.find('\n', all.find(text)) != std::string::npos;
    });
    return std::stoi(printed.substr(printed.find(text) + text.size()));
  }
  // Reads the rest and returns the exit code; -1 at the deadline or if it was killed.
  int finish() {
    printed += read_all(output_);
    complained += read_all(error_output_);
    int status = 0;
    if (!becomes_true([&] { return ::waitpid(pid_, &status, WNOHANG) == pid_; })) return -1;
    pid_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }

  std::string printed;
  std::string complained;

 private:
  static int exit_code_of_job(const launch::SupervisorOptions& options) {
    try {
      return launch::supervise(options);
    } catch (const Error& error) {
      ::dprintf(STDERR_FILENO, "%s\n", error.what());
      return exit_code_of(error);
    }
  }
  static int occurrences(const std::string& in, const std::string& text) {
    int count = 0;
    for (size_t at = in.find(text); at != std::string::npos; at = in.find(text, at + text.size()))
      ++count;
    return count;
  }

  pid_t pid_ = -1;
  int output_ = -1;
  int error_output_ = -1;
};

}  // namespace trireme::tests
