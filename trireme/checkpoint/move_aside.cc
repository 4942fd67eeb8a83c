#include <trireme/checkpoint/move_aside.h>

#include <fmt/format.h>
#include <trireme/base/error.h>
#include <trireme/base/log.h>
#include <trireme/checkpoint/leftovers.h>
#include <trireme/checkpoint/step_name.h>
#include <algorithm>

namespace trireme::checkpoint {
namespace {

namespace fs = std::filesystem;

// Returns the folder by its name in its parent: "a/b" for "a/b/", "a/b/." and "a/c/../b". Links
// before the last name are resolved.
fs::path own_path(const fs::path& folder) {
  try {
    fs::path path = fs::absolute(folder);
    while (!path.has_filename() && path.has_relative_path()) path = path.parent_path();
    if (path.filename() == "." || path.filename() == "..") return fs::canonical(path);
    return fs::canonical(path.parent_path()) / path.filename();
  } catch (const fs::filesystem_error& error) {
    refuse("find", folder, error.code().value());
  }
}

bool is_around(const fs::path& folder, const fs::path& path) {
  return std::mismatch(folder.begin(), folder.end(), path.begin(), path.end()).first ==
         folder.end();
}

fs::path free_name(const std::string& stem) {
  for (int number = 1;; ++number)
    if (fs::path path = fmt::format("{}{}", stem, number); !is_there(path)) return path;
}

bool move_whole(FileSystem& files, const fs::path& folder, const fs::path& to) {
  std::error_code unknown;  // A working directory that was removed is in no folder.
  if (is_around(folder, fs::current_path(unknown))) return false;
  try {
    files.rename(folder, to);
  } catch (const Error& error) {
    log_debug("the folder stays, and its checkpoints are moved: {}", error.what());
    return false;
  }
  files.sync_folder(to.parent_path());
  return true;
}

}  // namespace

fs::path move_aside(FileSystem& files, const fs::path& folder,
                    const std::vector<std::string>& others) {
  const fs::path own = own_path(folder);
  if (fs::path aside = free_name(own.string() + ".old-"); move_whole(files, own, aside))
    return aside;
  const fs::path aside = free_name((own / "old-").string());
  files.make_folder(aside);
  std::vector<std::string> names;
  for (const auto& entry : files.list(own))
    if (step_of_name(entry.name) || is_leftover_name(entry.name) ||
        std::find(others.begin(), others.end(), entry.name) != others.end())
      names.push_back(entry.name);
  // If the move is interrupted, the newest checkpoints are still in their place.
  std::sort(names.begin(), names.end());
  for (const std::string& name : names) files.rename(own / name, aside / name);
  files.sync_folder(aside);
  files.sync_folder(own);
  return aside;
}

}  // namespace trireme::checkpoint
