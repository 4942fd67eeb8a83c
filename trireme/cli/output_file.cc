#include <fmt/format.h>
#include <poll.h>
#include <termios.h>
#include <trireme/base/deadline.h>
#include <trireme/base/error.h>
#include <trireme/base/files.h>
#include <trireme/base/units.h>
#include <trireme/cli/output_file.h>
#include <unistd.h>
#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <system_error>

namespace trireme::cli {
namespace {

namespace fs = std::filesystem;

fs::path whole_path(const fs::path& path) {
  std::error_code ignored;  // A working directory that is gone is refused by what uses it.
  const fs::path whole = fs::absolute(path, ignored).lexically_normal();
  return whole.has_filename() ? whole : whole.parent_path();
}

// Whether making `made` with its parents makes `folder`.
bool is_made_with(const fs::path& folder, const fs::path& made) {
  const fs::path whole = whole_path(folder), deepest = whole_path(made);
  return std::mismatch(whole.begin(), whole.end(), deepest.begin(), deepest.end()).first ==
         whole.end();
}

// The folder beside the missing one whose name is nearest, or an empty path.
fs::path similar_folder(const fs::path& missing) {
  std::vector<std::string> names;
  std::error_code ignored;  // A folder that cannot be read has no similar names.
  const fs::path above = missing.has_parent_path() ? missing.parent_path() : fs::path(".");
  for (auto entry = fs::directory_iterator(above, ignored); entry != fs::directory_iterator();
       entry.increment(ignored))
    if (entry->is_directory(ignored)) names.push_back(entry->path().filename().string());
  std::ranges::sort(names);
  const std::vector<std::string_view> views(names.begin(), names.end());
  const std::string near = nearest_word(missing.filename().string(), views.data(), views.size());
  return near.empty() ? fs::path() : missing.parent_path() / near;
}

}  // namespace

bool ask_in_terminal(const std::string& question) {
  // A process in the background would be stopped when it reads from the terminal. Services that
  // build and test set CI, and nobody sits in front of their terminals.
  const char* const service = std::getenv("CI");
  if (!::isatty(STDIN_FILENO) || !::isatty(STDERR_FILENO) ||
      ::tcgetpgrp(STDIN_FILENO) != ::getpgrp() || (service && *service))
    return false;
  ::tcflush(STDIN_FILENO, TCIFLUSH);  // What was typed before is no answer.
  fmt::print(stderr, "{} [y/N] ", question);
  const Deadline deadline = Deadline::after(std::chrono::minutes(1));
  std::string answer;
  for (char character = 0;; answer += character) {
    pollfd input{.fd = STDIN_FILENO, .events = POLLIN, .revents = 0};
    if (::poll(&input, 1, deadline.remaining_as_int()) <= 0 ||
        ::read(STDIN_FILENO, &character, 1) != 1)
      return false;
    if (character == '\n' || character == '\r') break;
  }
  return answer == "y" || answer == "Y" || answer == "yes";
}

void require_place_of(const std::string& option, const fs::path& file,
                      const std::vector<fs::path>& made,
                      bool (*ask)(const std::string& question)) {
  if (file.empty()) return;
  const std::string given = fmt::format("{} {}", option, file.string());
  std::error_code ignored;  // A path that cannot be examined is refused when it is written.
  if (!file.has_filename() || fs::is_directory(file, ignored))
    throw Error(ErrorCode::invalid_argument, "cli", given + " is a folder",
                fmt::format("{} {}", option, (file / "NAME").string()));
  const fs::path folder = file.parent_path();
  if (folder.empty() || fs::is_directory(folder, ignored)) return;
  if (std::ranges::any_of(made, [&](const fs::path& one) { return is_made_with(folder, one); }))
    return;
  if (fs::exists(folder, ignored))
    throw Error(ErrorCode::invalid_argument, "cli",
                fmt::format("{}: {} is not a folder", given, folder.string()),
                "a file in a folder");
  const fs::path similar = similar_folder(folder);
  if (ask(fmt::format("{}: there is no folder {}. Shall it be made?", given, folder.string())))
    return require_writable_folder(folder);
  const std::string make = fmt::format("mkdir -p {}", folder.string());
  throw Error(ErrorCode::not_found, "cli",
              fmt::format("{}: there is no folder {}", given, folder.string()),
              similar.empty() ? make + ", if that folder is meant"
                              : fmt::format("{} {}, or {}, if that folder is meant", option,
                                            (similar / file.filename()).string(), make));
}

}  // namespace trireme::cli
