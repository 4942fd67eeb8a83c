// The lock that lets only one job at a time write into a folder of checkpoints.
//
// The lock file names the process that has the lock, its job and its launcher. Therefore a job
// recognises its own members, and orphans: processes that a dead launcher left behind.
#pragma once
#include <trireme/base/deadline.h>
#include <trireme/checkpoint/file_system.h>
#include <trireme/watch/job_mark.h>
#include <filesystem>
#include <memory>

namespace trireme::checkpoint {

// Returns a lock that is held until the value is destroyed or its process ends, however it ends. A
// run that is started again therefore gets the folder at once. Waits up to `wait` for another
// holder to release it. A worker whose launcher lives ends orphans of another job, which may have
// taken the lock after make_way(). Throws Error(invalid_argument) that names the holder (process,
// host, since when) if it belongs to another job that is alive. Throws Error(peer_lost) if the
// holder will or may release it by itself, so that another attempt helps. Throws Error(io).
std::unique_ptr<FileSystem::Lock> lock_folder(FileSystem& files,
                                              const std::filesystem::path& folder,
                                              Milliseconds wait = Milliseconds(0));

// Makes `folder` free for the launcher of a job, before it starts its workers. Returns once the
// folder is free, or held by a member of the same job. Orphans of another launcher are asked to
// save and to end, and are killed after `grace`. A job whose launcher is alive is left alone. With
// `begins_anew` a member of the same job gets time to end by itself. Does not take the lock, and
// the folder need not exist. Throws the errors of lock_folder().
struct FolderUse {
  bool by_own_job = false;
};
FolderUse make_way(const std::filesystem::path& folder, const watch::JobMark& job,
                   Milliseconds grace, bool begins_anew = false);

}  // namespace trireme::checkpoint
