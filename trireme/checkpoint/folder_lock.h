// One job at a time writes into a folder of checkpoints. No torch.
#pragma once
#include <trireme/base/deadline.h>
#include <trireme/checkpoint/file_system.h>
#include <filesystem>
#include <memory>

namespace trireme::checkpoint {

// Held until the value is destroyed or its process is gone, however it ended: a run that is started
// again has the folder at once. Waits so long for another holder to go. Throws
// Error(invalid_argument) that names who has it (process, host, since when), or Error(io).
std::unique_ptr<FileSystem::Lock> lock_folder(FileSystem& files,
                                              const std::filesystem::path& folder,
                                              Milliseconds wait = Milliseconds(0));
// Throws likewise if a job has `folder` now; takes nothing, and need not exist.
void require_free(const std::filesystem::path& folder);

}  // namespace trireme::checkpoint
