// The states in which a power failure can leave a disk in the middle of a trace
// (tracing_file_system.h).
#pragma once
#include <trireme/base/files.h>
#include <functional>
#include <map>
#include <set>

#include "tracing_file_system.h"

namespace trireme::checkpoint {

// Returns true if operation i of the first `count` is certainly on the disk: bytes after a later
// sync of their file, names after a later sync of their folder. Each other operation may be on the
// disk or not, so they may also seem to have happened in another order.
inline bool is_durable(const std::vector<Operation>& trace, size_t i, size_t count) {
  using Kind = Operation::Kind;
  const Operation& operation = trace[i];
  for (size_t later = i + 1; later < count; ++later) {
    const Operation& sync = trace[later];
    if (operation.kind == Kind::write && sync.kind == Kind::sync && sync.file == operation.file)
      return true;
    if (operation.kind != Kind::write && sync.kind == Kind::sync_folder &&
        sync.path == operation.path.parent_path())
      return true;
  }
  return false;
}

// Brings the folder `state` from its state before the trace into the state after a crash that
// follows the first `count` operations. The trace was recorded under `recorded`. `survives(i)`
// decides about operations that are not durable.
inline void crash_into(const std::filesystem::path& state, const std::filesystem::path& recorded,
                       const std::vector<Operation>& trace, size_t count,
                       const std::function<bool(size_t)>& survives) {
  namespace fs = std::filesystem;
  using Kind = Operation::Kind;
  const auto here = [&](const fs::path& path) {
    return state / path.lexically_relative(recorded);
  };
  std::map<size_t, std::string> contents;
  // The present places of the files that exist.
  std::map<size_t, fs::path> places;
  // Errors of operations whose basis was lost.
  std::error_code ignored;
  for (size_t i = 0; i < count; ++i) {
    const Operation& operation = trace[i];
    if (!is_durable(trace, i, count) && !survives(i)) continue;
    const fs::path path = here(operation.path),
                   to = operation.to.empty() ? fs::path() : here(operation.to);
    switch (operation.kind) {
      case Kind::create:
        if (fs::is_directory(path.parent_path())) places[operation.file] = path;
        break;
      case Kind::write: {
        std::string& content = contents[operation.file];
        content.resize(
            std::max<size_t>(content.size(), operation.offset + operation.bytes.size()));
        std::copy_n(reinterpret_cast<const char*>(operation.bytes.data()), operation.bytes.size(),
                    content.begin() + static_cast<long>(operation.offset));
        break;
      }
      case Kind::make_folder: fs::create_directory(path, ignored); break;
      case Kind::rename:
        if (!fs::exists(path)) break;
        fs::remove_all(to);
        fs::rename(path, to);
        for (auto& [file, place] : places)
          if (const fs::path inside = place.lexically_relative(path);
              !inside.empty() && *inside.begin() != "..")
            place = to / inside;
        break;
      case Kind::remove:
        fs::remove(path, ignored);
        std::erase_if(places, [&](const auto& each) { return each.second == path; });
        break;
      case Kind::sync:
      case Kind::sync_folder: break;
    }
  }
  for (const auto& [file, place] : places)
    if (fs::is_directory(place.parent_path()))
      std::ofstream(place, std::ios::binary) << contents[file];
}

}  // namespace trireme::checkpoint
