// One job at a time writes into a folder of checkpoints. No torch.
#pragma once
#include <trireme/checkpoint/file_system.h>
#include <filesystem>
#include <memory>

namespace trireme::checkpoint {

// Held until the value is destroyed or its process is gone, however it ended: a run that is started again has the folder at once.
// Throws Error(invalid_argument) that names who has it (process, host, since when), or Error(io).
std::unique_ptr<FileSystem::Lock> lock_folder(FileSystem& files, const std::filesystem::path& folder);
// Throws likewise if a job has `folder` now; takes nothing, and need not exist.
void require_free(const std::filesystem::path& folder);

}  // namespace trireme::checkpoint
