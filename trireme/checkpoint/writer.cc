#include <trireme/checkpoint/writer.h>

#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <trireme/base/cores.h>
#include <trireme/base/error.h>
#include <trireme/base/log.h>
#include <unistd.h>
#include <algorithm>
#include <utility>

namespace trireme::checkpoint {
namespace {

constexpr int kNice = 10;
constexpr int kCopyThreads = 2;  // As many as fill the memory's bandwidth on small machines.

// Training goes first. Linux counts both by thread; ioprio_set(2) has no wrapper: the lowest of the best-effort class. No matter if
// refused.
void lower_priority() {
  const auto self = static_cast<id_t>(::syscall(SYS_gettid));
  ::setpriority(PRIO_PROCESS, self, kNice);
  constexpr int kOfProcess = 1, kBestEffort = 2, kClassShift = 13, kLowest = 7;
  ::syscall(SYS_ioprio_set, kOfProcess, self, kBestEffort << kClassShift | kLowest);
}

}  // namespace

Writer::Writer(Folder folder, WriterOptions options) : folder_(std::move(folder)), options_(options) {}

Writer::~Writer() {
  thread_.request_stop();
  if (thread_.joinable()) thread_.join();
  if (!error_) return;
  try {
    std::rethrow_exception(error_);
  } catch (const std::exception& error) {
    log_error("a checkpoint was not saved: {}", error.what());
  }
}

std::filesystem::path Writer::save(Manifest manifest, const std::vector<TensorView>& model, const std::vector<TensorView>& optimizer) {
  std::filesystem::path path = folder_.path_of(manifest.step);
  if (!options_.background) {
    saved_.push_back(folder_.save(std::move(manifest), model, optimizer));
    return path;
  }
  std::unique_lock lock(mutex_);
  throw_if_failed();
  Snapshot& snapshot = idle_snapshot(lock);
  throw_if_failed();
  lock.unlock();
  snapshot.take(model, optimizer, std::min(kCopyThreads, usable_cores()));
  lock.lock();
  pending_.push_back({std::move(manifest), &snapshot});
  if (!thread_.joinable()) thread_ = std::jthread([this](std::stop_token stop) { write_on(std::move(stop)); });
  changed_.notify_all();
  return path;
}

void Writer::wait() {
  std::unique_lock lock(mutex_);
  wait_until(lock, [&] { return pending_.empty(); });
  throw_if_failed();
}

std::vector<std::filesystem::path> Writer::take_saved() {
  std::unique_lock lock(mutex_);
  throw_if_failed();
  return std::exchange(saved_, {});
}

// The one that is not pending; the first if neither is, so that the second one is made only when it is needed.
Snapshot& Writer::idle_snapshot(std::unique_lock<std::mutex>& lock) {
  const auto idle = [&]() -> Snapshot* {
    for (Snapshot& snapshot : snapshots_)
      if (std::none_of(pending_.begin(), pending_.end(), [&](const Pending& each) { return each.snapshot == &snapshot; })) return &snapshot;
    return nullptr;
  };
  wait_until(lock, [&] { return idle() != nullptr; });
  return *idle();
}

template <typename Condition>
void Writer::wait_until(std::unique_lock<std::mutex>& lock, Condition condition) {
  if (changed_.wait_for(lock, options_.timeout, condition)) return;
  throw Error(ErrorCode::timeout, "checkpoint",
              fmt::format("the disk has not taken {} in {} s", folder_.path_of(pending_.front().manifest.step).string(),
                          std::chrono::duration_cast<std::chrono::seconds>(options_.timeout).count()),
              "a look at the disk (or its network): it may hang");
}

void Writer::throw_if_failed() {
  if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
}

// Writes all that is pending, also after a request to stop.
void Writer::write_on(std::stop_token stop) {
  lower_priority();
  std::unique_lock lock(mutex_);
  while (changed_.wait(lock, stop, [&] { return !pending_.empty(); })) {
    Pending& next = pending_.front();
    std::exception_ptr error;
    lock.unlock();
    try {
      folder_.save(next.manifest, next.snapshot->files());
    } catch (const std::exception&) {
      error = std::current_exception();
    }
    lock.lock();
    if (!error)
      saved_.push_back(folder_.path_of(next.manifest.step));
    else if (!error_)
      error_ = error;
    pending_.pop_front();
    changed_.notify_all();
  }
}

}  // namespace trireme::checkpoint
