#include <fmt/format.h>
#include <trireme/base/process_id.h>
#include <unistd.h>
#include <array>
#include <cstdlib>
#include <fstream>
#include <sstream>

namespace trireme {
namespace {

constexpr size_t kState = 3;
constexpr size_t kStart = 22;

// The start of a process, or 0 if there is no such process or it has ended.
uint64_t start_of(pid_t pid) {
  const std::vector<std::string> fields = process_stat(pid);
  if (fields.size() <= kStart || fields[kState] == "Z" || fields[kState] == "X") return 0;
  return std::strtoull(fields[kStart].c_str(), nullptr, 10);
}

std::string this_place() {
  std::string boot;
  std::getline(std::ifstream("/proc/sys/kernel/random/boot_id"), boot);
  std::array<char, 64> numbers{};
  const ssize_t length = ::readlink("/proc/self/ns/pid", numbers.data(), numbers.size() - 1);
  return fmt::format("{} {}", boot, length > 0 ? numbers.data() : "");
}

}  // namespace

std::vector<std::string> process_stat(pid_t pid) {
  std::ifstream file(fmt::format("/proc/{}/stat", pid));
  std::string text;
  std::getline(file, text);
  const size_t name_end = text.rfind(')');  // The name may hold spaces and brackets.
  if (name_end == std::string::npos) return {};
  std::istringstream rest(text.substr(name_end + 1));
  std::vector<std::string> fields(kState);
  for (std::string field; rest >> field;) fields.push_back(field);
  return fields;
}

ProcessId ProcessId::of(pid_t pid) { return {pid, start_of(pid), this_place()}; }
ProcessId ProcessId::of_this_process() { return of(::getpid()); }
bool ProcessId::is_here() const { return place == this_place(); }
bool ProcessId::lives() const { return started != 0 && is_here() && start_of(pid) == started; }

}  // namespace trireme
