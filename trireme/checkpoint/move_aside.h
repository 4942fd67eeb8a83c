// Checkpoints that a run is not to go on from are moved, never removed. No torch.
#pragma once
#include <trireme/checkpoint/file_system.h>
#include <filesystem>
#include <string>
#include <vector>

namespace trireme::checkpoint {

// Moves the folder to "<folder>.old-1", or the next number that is free, and returns where it is
// now. A link that stands for the folder is moved, not what it points to. A folder that cannot be
// moved (the working directory, or one around it; the root of a file system) stays, and what it
// holds of checkpoints is moved to "old-1" in it, `others` too. Durable. Throws Error(io).
std::filesystem::path move_aside(FileSystem& files, const std::filesystem::path& folder,
                                 const std::vector<std::string>& others = {});

}  // namespace trireme::checkpoint
