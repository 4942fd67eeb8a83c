#include <fmt/format.h>
#include <trireme/base/error.h>
#include <trireme/cli/loop_faults.h>
#include <unistd.h>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstring>

namespace trireme::cli {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kFolderOfMarks = "trireme-faults-";

// Whether the folder's name has the number of a process that is gone.
bool is_abandoned(const std::string& name) {
  if (!name.starts_with(kFolderOfMarks)) return false;
  int pid = 0;
  const auto read =
      std::from_chars(name.data() + kFolderOfMarks.size(), name.data() + name.size(), pid);
  return read.ec == std::errc() && pid > 0 && ::kill(pid, 0) != 0 && errno == ESRCH;
}

void remove_abandoned(const fs::path& parent) {
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(parent, ignored))
    if (is_abandoned(entry.path().filename().string())) fs::remove_all(entry.path(), ignored);
}

}  // namespace

LoopFaults::LoopFaults(bool leaves_marks) : leaves_marks_(leaves_marks) {
  const fs::path parent = fs::temp_directory_path();
  remove_abandoned(parent);
  std::string pattern = (parent / fmt::format("{}{}-XXXXXX", kFolderOfMarks, ::getpid())).string();
  if (::mkdtemp(pattern.data()) == nullptr)
    throw Error(
        ErrorCode::io, "cli",
        fmt::format("cannot make a folder in {}: {}", parent.string(), std::strerror(errno)),
        "TMPDIR, set to a folder that can be written");
  marks_ = pattern;
}

bool LoopFaults::none_has_struck() const {
  std::error_code ignored;
  return leaves_marks_ && fs::is_empty(marks_, ignored) && !ignored;
}

LoopFaults::~LoopFaults() {
  std::error_code ignored;
  fs::remove_all(marks_, ignored);
}

}  // namespace trireme::cli
