#include <execinfo.h>
#include <trireme/base/files.h>
#include <trireme/base/stack_dump.h>
#include <unistd.h>
#include <array>
#include <cerrno>
#include <cstdint>
#include <exception>
#include <string>

namespace trireme {
namespace {

constexpr int kFrames = 64;
constexpr int kOwnFrames = 2;  // The handler, and the kernel's return from it.

void dump(int) {
  const int before = errno;
  std::array<void*, kFrames> frames;
  const int count = ::backtrace(frames.data(), kFrames);
  constexpr char kTitle[] = "the stack of the main thread, innermost first:\n";
  [[maybe_unused]] const auto written = ::write(STDERR_FILENO, kTitle, sizeof kTitle - 1);
  if (count > kOwnFrames)
    ::backtrace_symbols_fd(frames.data() + kOwnFrames, count - kOwnFrames, STDERR_FILENO);
  errno = before;
}

}  // namespace

void dump_stack_on_signal() {
  std::array<void*, 1> frame;
  ::backtrace(frame.data(), 1);  // The first call loads a library, which a handler must not do.
  struct sigaction now {};
  if (::sigaction(kStackDumpSignal, nullptr, &now) != 0 || now.sa_handler != SIG_DFL) return;
  struct sigaction wanted {};
  wanted.sa_handler = dump;
  wanted.sa_flags = SA_RESTART;
  ::sigaction(kStackDumpSignal, &wanted, nullptr);
}

bool dumps_stack_on_signal(pid_t process) {
  std::string status;
  try {
    status = read_file("/proc/" + std::to_string(process) + "/status");
  } catch (const std::exception&) {
    return false;
  }
  const size_t at = status.find("SigCgt:");
  if (at == std::string::npos) return false;
  const uint64_t caught = std::stoull(status.substr(at + 7), nullptr, 16);
  return (caught >> (kStackDumpSignal - 1) & 1) != 0;
}

}  // namespace trireme
