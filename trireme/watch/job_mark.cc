#include <fmt/format.h>
#include <trireme/base/environment.h>
#include <trireme/base/json.h>
#include <trireme/base/log.h>
#include <trireme/base/process_id.h>
#include <trireme/base/units.h>
#include <trireme/watch/job_mark.h>
#include <trireme/watch/stop_request.h>
#include <unistd.h>
#include <charconv>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <set>
#include <thread>

namespace trireme::watch {
namespace {

constexpr const char* kMarkVariable = "TRIREME_JOB";
constexpr Milliseconds kLookForJobAgain{10};
constexpr Milliseconds kUntilKilled{5000};
constexpr Milliseconds kUntilStarted{1000};

// Whether the kernel shows the environment of this process at the moment. It shows none of a
// process that is just replacing its programme (execve), although the process has one. The
// kernel writes where the environment stands step by step, and where the code stands last.
bool shows_environment(pid_t pid) {
  const std::vector<std::string> stat = process_stat(pid);
  constexpr size_t kState = 3, kMemory = 23, kCode = 26, kStart = 50, kEnd = 51;
  if (stat.size() <= kEnd || stat[kState] == "Z" || stat[kMemory] == "0") return true;
  return stat[kCode] != "0" && stat[kEnd] != "0" && stat[kStart] == stat[kEnd];
}

bool has_in_environment(pid_t pid, const std::string& entry) {
  for (const Deadline deadline = Deadline::after(kUntilStarted);;) {
    std::ifstream file(fmt::format("/proc/{}/environ", pid));
    if (!file) return false;
    bool is_empty = true;
    for (std::string each; std::getline(file, each, '\0'); is_empty = false)
      if (each == entry) return true;
    if (!is_empty || shows_environment(pid) || deadline.expired()) return false;
    std::this_thread::yield();
  }
}

// Waits until none of the mark's processes is left. Returns false at the deadline.
bool wait_until_gone(const JobMark& mark, Deadline deadline) {
  for (; !processes_of(mark).empty(); std::this_thread::sleep_for(kLookForJobAgain))
    if (deadline.expired()) return false;
  return true;
}

}  // namespace

std::string JobMark::to_text() const {
  return Json::array({job, nodes, launcher.pid, launcher.started, launcher.place}).dump();
}

std::optional<JobMark> JobMark::from_text(const std::string& text) {
  const Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  try {
    return JobMark{
        json.at(0).get<std::string>(),
        json.at(1).get<int>(),
        {json.at(2).get<pid_t>(), json.at(3).get<uint64_t>(), json.at(4).get<std::string>()}};
  } catch (const Json::exception&) {
    return std::nullopt;
  }
}

JobMark JobMark::of_this_process() {
  const auto text = Environment::of_process().get(kMarkVariable);
  return text ? from_text(*text).value_or(JobMark{}) : JobMark{};
}

std::vector<pid_t> processes_of(const JobMark& mark) {
  const std::string entry = fmt::format("{}={}", kMarkVariable, mark.to_text());
  std::vector<pid_t> found;
  std::error_code ignored;
  for (const auto& each : std::filesystem::directory_iterator("/proc", ignored)) {
    const std::string name = each.path().filename();
    pid_t pid = 0;
    const auto [end, status] = std::from_chars(name.data(), name.data() + name.size(), pid);
    if (status != std::errc() || end != name.data() + name.size() || pid == ::getpid()) continue;
    if (has_in_environment(pid, entry)) found.push_back(pid);
  }
  return found;
}

bool end_orphans(const JobMark& mark, Milliseconds grace) {
  std::set<pid_t> asked;
  for (const Deadline deadline = Deadline::after(grace);;) {
    const std::vector<pid_t> left = processes_of(mark);
    if (left.empty()) return true;
    for (const pid_t pid : left)
      if (asked.insert(pid).second) ask_to_stop(pid);
    if (deadline.expired()) break;
    std::this_thread::sleep_for(kLookForJobAgain);
  }
  for (const pid_t pid : processes_of(mark)) {
    log_warning(
        "watch: process {}, whose launcher is gone, did not save and end within {}: it is "
        "killed",
        pid, format_duration(grace));
    ::kill(pid, SIGKILL);
  }
  return wait_until_gone(mark, Deadline::after(kUntilKilled));
}

}  // namespace trireme::watch
