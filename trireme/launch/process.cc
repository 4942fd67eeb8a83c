#include <trireme/launch/process.h>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <trireme/base/descriptor.h>
#include <trireme/base/error.h>
#include <unistd.h>
#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <limits>
#include <utility>

namespace trireme::launch {
namespace {

// Moves the descriptor above the standard three. Those are set in the child, which then overwrites
// no descriptor that is still needed.
Descriptor high(int opened) {
  Descriptor descriptor(opened);
  if (descriptor && opened <= STDERR_FILENO)
    descriptor = Descriptor(::fcntl(opened, F_DUPFD_CLOEXEC, STDERR_FILENO + 1));
  if (descriptor) return descriptor;
  throw Error(ErrorCode::io, "launch",
              fmt::format("no descriptor for a worker: {}", std::strerror(errno)),
              "a higher limit of open files (ulimit -n)");
}

struct Pipe {
  Descriptor read;
  Descriptor write;
};

Pipe make_pipe() {
  int ends[2] = {-1, -1};
  if (::pipe2(ends, O_CLOEXEC) != 0) ends[0] = ends[1] = -1;
  Descriptor read(ends[0]), write(ends[1]);  // Each has its owner before high() may throw.
  return {high(read.release()), high(write.release())};
}

std::vector<char*> pointers_to(const std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  for (const std::string& text : texts) pointers.push_back(const_cast<char*>(text.c_str()));
  pointers.push_back(nullptr);
  return pointers;
}

// From here to exec the child makes only calls that are allowed after a process with threads
// forks.
void close_from_to(int first, int last, rlim_t limit) {
  if (first > last ||
      ::close_range(static_cast<unsigned>(first), static_cast<unsigned>(last), 0) == 0)
    return;
  for (int fd = first; fd <= last && fd < static_cast<int>(limit); ++fd) ::close(fd);
}

void close_all_but(int one, int other, rlim_t limit) {
  const int low = std::min(one, other), high = std::max(one, other);
  constexpr int kFirst = STDERR_FILENO + 1;
  close_from_to(kFirst, low - 1, limit);
  close_from_to(std::max(low + 1, kFirst), high - 1, limit);
  close_from_to(high + 1, std::numeric_limits<int>::max(), limit);
}

struct ChildSetup {
  pid_t parent;
  char* const* arguments;
  char* const* environment;
  int input;
  int output;
  int error_output;
  int kept;     // -1: none.
  int failure;  // The child writes errno here if the programme cannot be started.
  rlim_t descriptor_limit;
  bool outlives_us;
};

[[noreturn]] void become_program(const ChildSetup& setup) {
  ::setpgid(0, 0);
  if (!setup.outlives_us) ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  // The parent may have ended before the line above took effect.
  if (::getppid() != setup.parent) ::_exit(127);
  ::dup2(setup.input, STDIN_FILENO);
  ::dup2(setup.output, STDOUT_FILENO);
  ::dup2(setup.error_output, STDERR_FILENO);
  close_all_but(setup.failure, setup.kept, setup.descriptor_limit);
  if (setup.kept >= 0) ::fcntl(setup.kept, F_SETFD, 0);
  for (const int reset : {SIGINT, SIGTERM, SIGPIPE, SIGCHLD}) ::signal(reset, SIG_DFL);
  sigset_t none;
  sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  ::execvpe(setup.arguments[0], setup.arguments, setup.environment);
  const int reason = errno;
  [[maybe_unused]] const auto written = ::write(setup.failure, &reason, sizeof reason);
  ::_exit(127);
}

// Signals are blocked: no handler of this process may run in the child before exec.
pid_t fork_with_signals_blocked(const ChildSetup& setup) {
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  const pid_t pid = ::fork();
  if (pid == 0) become_program(setup);
  const int reason = errno;
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  errno = reason;
  return pid;
}

void wait_for(pid_t pid, int* status) {
  while (::waitpid(pid, status, 0) < 0 && errno == EINTR) {
  }
}

[[noreturn]] void throw_not_started(const std::string& program, int reason) {
  if (reason == ENOENT) {
    throw Error(ErrorCode::not_found, "launch",
                fmt::format("cannot start the programme '{}': it was not found", program),
                "its full path, or ./NAME for one in this folder");
  }
  const char* remedy =
      reason == EACCES ? "chmod +x on the programme" : "the programme by itself in a shell first";
  throw Error(ErrorCode::invalid_argument, "launch",
              fmt::format("cannot start the programme '{}': {}", program, std::strerror(reason)),
              remedy);
}

}  // namespace

std::string signal_name(int signal) {
  const char* name = ::sigabbrev_np(signal);
  return name ? fmt::format("SIG{}", name) : fmt::format("signal {}", signal);
}

std::string ProcessEnd::describe() const {
  return by_signal ? fmt::format("killed by signal {} ({})", code, signal_name(code))
                   : fmt::format("exit code {}", code);
}

ChildProcess::ChildProcess(const std::vector<std::string>& command,
                           const std::vector<std::string>& environment, int kept,
                           bool outlives_us) {
  const std::vector<char*> arguments = pointers_to(command);
  const std::vector<char*> variables = pointers_to(environment);
  const Descriptor input = high(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  Pipe output = make_pipe();
  Pipe error_output = make_pipe();
  Pipe failure = make_pipe();
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);

  pid_ = fork_with_signals_blocked({.parent = ::getpid(),
                                    .arguments = arguments.data(),
                                    .environment = variables.data(),
                                    .input = input.get(),
                                    .output = output.write.get(),
                                    .error_output = error_output.write.get(),
                                    .kept = kept,
                                    .failure = failure.write.get(),
                                    .descriptor_limit = std::min<rlim_t>(limit.rlim_cur, 1 << 16),
                                    .outlives_us = outlives_us});
  if (pid_ < 0) {
    throw Error(
        ErrorCode::io, "launch",
        fmt::format("cannot start a process for '{}': {}", command[0], std::strerror(errno)),
        "fewer workers, or a higher limit of processes (ulimit -u)");
  }
  failure.write.reset();
  int reason = 0;
  ssize_t got = 0;
  do {  // The read ends when exec has closed the other end, or the child has written its errno.
    got = ::read(failure.read.get(), &reason, sizeof reason);
  } while (got < 0 && errno == EINTR);
  if (got == sizeof reason) {
    wait_for(pid_, nullptr);
    throw_not_started(command[0], reason);
  }
  output_ = output.read.release();
  error_output_ = error_output.read.release();
  for (const int fd : {output_, error_output_}) ::fcntl(fd, F_SETFL, O_NONBLOCK);
}

ChildProcess::ChildProcess(ChildProcess&& other) noexcept
    : pid_(std::exchange(other.pid_, -1)),
      output_(std::exchange(other.output_, -1)),
      error_output_(std::exchange(other.error_output_, -1)),
      end_(other.end_) {}

ChildProcess::~ChildProcess() {
  for (const int fd : {output_, error_output_}) {
    if (fd >= 0) ::close(fd);
  }
  if (pid_ < 0 || end_) return;
  ::kill(-pid_, SIGKILL);
  wait_for(pid_, nullptr);
}

void ChildProcess::signal_group(int signal) {
  if (!end_) ::kill(-pid_, signal);
}

std::optional<ProcessEnd> ChildProcess::poll_end() {
  if (end_) return end_;
  siginfo_t info{};
  if (::waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG | WNOWAIT) != 0 ||
      info.si_pid == 0)
    return std::nullopt;
  // Before the child is reaped, no other process can get the number of its group.
  ::kill(-pid_, SIGKILL);
  int status = 0;
  wait_for(pid_, &status);
  end_ = WIFSIGNALED(status) ? ProcessEnd{true, WTERMSIG(status)}
                             : ProcessEnd{false, WEXITSTATUS(status)};
  return end_;
}

bool ChildProcess::is_stopped() const {
  siginfo_t info{};
  return !end_ &&
         ::waitid(P_PID, static_cast<id_t>(pid_), &info, WSTOPPED | WNOHANG | WNOWAIT) == 0 &&
         info.si_pid != 0;
}

std::vector<std::string> environment_of_this_process() {
  std::vector<std::string> entries;
  for (char** entry = environ; *entry; ++entry) entries.emplace_back(*entry);
  return entries;
}

}  // namespace trireme::launch
