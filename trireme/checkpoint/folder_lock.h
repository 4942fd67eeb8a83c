// One job at a time writes into a folder of checkpoints. No torch.
//
// The lock file says which process has the lock, and which job and launcher it belongs to: so a job
// knows its own members, and the processes that a dead launcher left behind (orphans).
#pragma once
#include <trireme/base/deadline.h>
#include <trireme/checkpoint/file_system.h>
#include <trireme/launch/job_mark.h>
#include <filesystem>
#include <memory>

namespace trireme::checkpoint {

// Held until the value is destroyed or its process is gone, however it ended: a run that is started
// again has the folder at once. Waits so long for another holder to go. Throws
// Error(invalid_argument) that names the holder (process, host, since when) if it belongs to
// another job that lives; Error(peer_lost) if it will go by itself, or may: trying again helps;
// Error(io).
std::unique_ptr<FileSystem::Lock> lock_folder(FileSystem& files,
                                              const std::filesystem::path& folder,
                                              Milliseconds wait = Milliseconds(0));

// For the launcher of a job, before it starts its workers: returns once `folder` is free, or a
// member of the same job has it. Orphans of another launcher are asked to save and to end, and
// killed after `grace`. Takes nothing, and the folder need not exist. Throws likewise; nothing is
// done to a job whose launcher lives.
struct FolderUse {
  bool by_own_job = false;
};
FolderUse make_way(const std::filesystem::path& folder, const launch::JobMark& job,
                   Milliseconds grace);

}  // namespace trireme::checkpoint
