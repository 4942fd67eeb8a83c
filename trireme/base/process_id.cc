#include <fmt/format.h>
#include <trireme/base/process_id.h>
#include <unistd.h>
#include <array>
#include <cstdlib>
#include <fstream>
#include <sstream>

namespace trireme {
namespace {

// The start of a process, or 0 if there is no such process or it has ended.
uint64_t start_of(pid_t pid) {
  std::ifstream file(fmt::format("/proc/{}/stat", pid));
  std::string text;
  std::getline(file, text);
  const size_t after_name = text.rfind(')');  // The name may hold spaces and brackets.
  if (after_name == std::string::npos) return 0;
  std::istringstream fields(text.substr(after_name + 1));
  std::string field;
  fields >> field;
  if (field == "Z" || field == "X") return 0;
  for (int i = 4; i <= 22; ++i) fields >> field;
  return std::strtoull(field.c_str(), nullptr, 10);
}

std::string this_place() {
  std::string boot;
  std::getline(std::ifstream("/proc/sys/kernel/random/boot_id"), boot);
  std::array<char, 64> numbers{};
  const ssize_t length = ::readlink("/proc/self/ns/pid", numbers.data(), numbers.size() - 1);
  return fmt::format("{} {}", boot, length > 0 ? numbers.data() : "");
}

}  // namespace

ProcessId ProcessId::of(pid_t pid) { return {pid, start_of(pid), this_place()}; }
ProcessId ProcessId::of_this_process() { return of(::getpid()); }
bool ProcessId::is_here() const { return place == this_place(); }
bool ProcessId::lives() const { return started != 0 && is_here() && start_of(pid) == started; }

}  // namespace trireme
