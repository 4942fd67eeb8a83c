#include <trireme/launch/descendants.h>

#include <sys/prctl.h>
#include <sys/wait.h>
#include <algorithm>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

namespace trireme::launch {
namespace {

std::vector<pid_t> children_of_this_process() {
  std::vector<pid_t> children;
  std::error_code ignored;
  for (const auto& thread : std::filesystem::directory_iterator("/proc/self/task", ignored)) {
    std::ifstream list(thread.path() / "children");
    for (pid_t child = 0; list >> child;) children.push_back(child);
  }
  return children;
}

// A process that has ended has no environment any more.
bool outlives_job(pid_t process) {
  std::ifstream environment("/proc/" + std::to_string(process) + "/environ");
  for (std::string variable; std::getline(environment, variable, '\0');)
    if (variable == kOutlivesJob) return true;
  return false;
}

}  // namespace

Descendants::Descendants() : earlier_children_(children_of_this_process()) {
  ::prctl(PR_GET_CHILD_SUBREAPER, &was_subreaper_);
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);
}
Descendants::~Descendants() {
  end_all(Deadline::after(Milliseconds(2000)));
  ::prctl(PR_SET_CHILD_SUBREAPER, was_subreaper_);
}

std::vector<pid_t> Descendants::left_over() const {
  std::vector<pid_t> children = children_of_this_process();
  std::erase_if(children,
                [&](pid_t child) { return std::ranges::count(earlier_children_, child) > 0; });
  std::erase_if(children, outlives_job);
  return children;
}

void Descendants::reap_ended(const std::vector<pid_t>& workers) const {
  for (const pid_t child : left_over()) {
    if (std::ranges::count(workers, child) == 0) ::waitpid(child, nullptr, WNOHANG);
  }
}

bool Descendants::end_all(Deadline deadline) const {
  for (std::vector<pid_t> left = left_over(); !left.empty(); left = left_over()) {
    for (const pid_t child : left) ::kill(child, SIGKILL);
    std::erase_if(left, [](pid_t child) { return ::waitpid(child, nullptr, WNOHANG) == child; });
    if (left.empty()) continue;  // Their children may have become this process's children.
    if (deadline.expired()) return false;
    // A killed process needs some time to end, and there is nothing else to do here.
    std::this_thread::sleep_for(Milliseconds(2));
  }
  return true;
}

}  // namespace trireme::launch
