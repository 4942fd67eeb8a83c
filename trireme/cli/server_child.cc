#include <fcntl.h>
#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <trireme/base/descriptor.h>
#include <trireme/base/error.h>
#include <trireme/cli/server_child.h>
#include <unistd.h>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <ctime>

namespace trireme::cli {
namespace {

[[noreturn]] void fail_child(const char* what) {
  throw Error(ErrorCode::io, "cli", fmt::format("{}: {}", what, std::strerror(errno)));
}

[[noreturn]] void run_server(int ports_to, pid_t parent,
                             const std::function<void(const ServerChild::TellPorts&)>& serve) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(1);  // It ended before the call above.
  try {
    serve([ports_to](std::span<const int> ports) {
      const auto bytes = static_cast<ssize_t>(ports.size_bytes());
      if (::write(ports_to, ports.data(), ports.size_bytes()) != bytes) ::_exit(1);
    });
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}\n", error.what());
  }
  ::_exit(1);
}

}  // namespace

ServerChild::ServerChild(size_t ports, const std::function<void(const TellPorts&)>& serve)
    : ports_(ports) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) fail_child("a pipe");
  const Descriptor from(ends[0]);
  Descriptor to(ends[1]);
  const pid_t parent = ::getpid();
  pid_ = ::fork();
  if (pid_ < 0) fail_child("fork");
  if (pid_ == 0) run_server(to.get(), parent, serve);
  to.reset();  // The end of the server's process is then the end of the pipe.
  const size_t bytes = ports_.size() * sizeof(int);
  if (::read(from.get(), ports_.data(), bytes) == static_cast<ssize_t>(bytes)) return;
  end();
  throw Error(ErrorCode::peer_lost, "cli", "the server's process ended at its start");
}

ServerChild::~ServerChild() { end(); }

void ServerChild::end() noexcept {
  ::kill(pid_, SIGKILL);
  ::waitpid(pid_, nullptr, 0);
}

double ServerChild::cpu_seconds_of_both() const {
  clockid_t server{};
  ::clock_getcpuclockid(pid_, &server);
  double seconds = 0;
  for (const clockid_t clock : {server, static_cast<clockid_t>(CLOCK_PROCESS_CPUTIME_ID)}) {
    timespec spent{};
    ::clock_gettime(clock, &spent);
    seconds += static_cast<double>(spent.tv_sec) + static_cast<double>(spent.tv_nsec) * 1e-9;
  }
  return seconds;
}

}  // namespace trireme::cli
