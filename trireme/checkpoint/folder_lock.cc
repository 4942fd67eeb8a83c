#include <trireme/checkpoint/folder_lock.h>

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <trireme/base/error.h>
#include <unistd.h>
#include <ctime>
#include <thread>

namespace trireme::checkpoint {
namespace {

constexpr const char* kLockFile = ".lock";
constexpr Milliseconds kLookAgain{10};

std::string who_i_am() {
  char host[256] = {};
  if (::gethostname(host, sizeof host - 1) != 0) host[0] = 0;
  return fmt::format("process {} on host {} since {:%Y-%m-%d %H:%M:%S}", ::getpid(), host,
                     fmt::localtime(std::time(nullptr)));
}

}  // namespace

std::unique_ptr<FileSystem::Lock> lock_folder(FileSystem& files,
                                              const std::filesystem::path& folder,
                                              Milliseconds wait) {
  std::string holder;
  for (const Deadline deadline = Deadline::after(wait);; std::this_thread::sleep_for(kLookAgain)) {
    if (auto lock = files.try_lock(folder / kLockFile, who_i_am(), holder)) return lock;
    if (deadline.expired()) break;
  }
  throw Error(ErrorCode::invalid_argument, "checkpoint",
              fmt::format("the folder {} is in use by another job: {}", folder.string(),
                          holder.empty() ? "who did not say" : holder),
              "another checkpoint.dir, or wait until that job has ended");
}

void require_free(const std::filesystem::path& folder) {
  if (std::filesystem::is_directory(folder)) lock_folder(disk(), folder).reset();
}

}  // namespace trireme::checkpoint
