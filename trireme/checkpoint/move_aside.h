// Moves checkpoints aside when a run must not continue from them. They are
// never removed.
#pragma once
#include <trireme/checkpoint/file_system.h>
#include <filesystem>
#include <string>
#include <vector>

namespace trireme::checkpoint {

// Moves the folder to "<folder>.old-1", or to the next free number, and returns its new place. If
// the folder is a link, the link is moved and not its target. The working directory, a folder
// around it and the root of a file system cannot be moved: such a folder stays, and its
// checkpoints and the names in `others` are moved to "old-1" inside it. The move is durable.
// Throws Error(io).
std::filesystem::path move_aside(FileSystem& files, const std::filesystem::path& folder,
                                 const std::vector<std::string>& others = {});

}  // namespace trireme::checkpoint
