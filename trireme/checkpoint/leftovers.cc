#include <trireme/checkpoint/leftovers.h>

#include <trireme/base/error.h>
#include <trireme/base/log.h>
#include <trireme/checkpoint/step_name.h>
#include <optional>

namespace trireme::checkpoint {
namespace {

namespace fs = std::filesystem;
constexpr std::string_view kWriting = ".writing-";
constexpr std::string_view kReplaced = ".replaced-";
constexpr char kAttempt = '+';

// Returns the name of the checkpoint that follows `kind`; empty if there is none.
std::optional<std::string> checkpoint_behind(std::string_view kind, std::string_view file_name) {
  if (!file_name.starts_with(kind)) return {};
  file_name.remove_prefix(kind.size());
  const std::string name(file_name.substr(0, file_name.find(kAttempt)));
  return step_of_name(name) ? std::optional(name) : std::nullopt;
}

void remove_leftover(FileSystem& files, const fs::path& path) {
  try {
    files.remove_tree(path);
  } catch (const Error& error) {
    // The leftover only takes space.
    log_warning("a leftover stays: {}", error.what());
  }
}

}  // namespace

std::string writing_name(std::string_view name, std::string_view attempt) {
  std::string writing = std::string(kWriting).append(name);
  return attempt.empty() ? writing : writing.append(1, kAttempt).append(attempt);
}
std::string replaced_name(std::string_view name) { return std::string(kReplaced).append(name); }
bool is_replaced_name(std::string_view file_name) {
  return checkpoint_behind(kReplaced, file_name).has_value();
}
bool is_leftover_name(std::string_view file_name) {
  return is_replaced_name(file_name) || checkpoint_behind(kWriting, file_name).has_value();
}

void clean_leftovers(FileSystem& files, const fs::path& folder) {
  for (const auto& entry : files.list(folder)) {
    if (checkpoint_behind(kWriting, entry.name)) remove_leftover(files, folder / entry.name);
    const auto replaced = checkpoint_behind(kReplaced, entry.name);
    if (!replaced) continue;
    std::error_code ignored;
    if (fs::exists(folder / *replaced, ignored)) {
      remove_leftover(files, folder / entry.name);
    } else {
      // A link that leads nowhere may be in the way.
      if (is_there(folder / *replaced)) files.remove(folder / *replaced);
      files.rename(folder / entry.name, folder / *replaced);
      files.sync_folder(folder);
      log_warning("put {} back, because its replacement was not finished",
                  (folder / *replaced).string());
    }
  }
}

}  // namespace trireme::checkpoint
