#include <trireme/checkpoint/writer.h>

#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <trireme/base/cores.h>
#include <trireme/base/deadline.h>
#include <trireme/base/error.h>
#include <trireme/base/log.h>
#include <trireme/checkpoint/step_name.h>
#include <unistd.h>
#include <algorithm>
#include <utility>

namespace trireme::checkpoint {
namespace {

constexpr int kNice = 10;
// The interval at which save() and wait() ask whether the other writers are still there.
constexpr std::chrono::milliseconds kLookAgain{20};

// Gives training priority over this thread. Linux counts both priorities by thread. ioprio_set(2)
// has no wrapper; the value is the lowest of the best-effort class. A refusal does no harm.
void lower_priority() {
  const auto self = static_cast<id_t>(::syscall(SYS_gettid));
  ::setpriority(PRIO_PROCESS, self, kNice);
  constexpr int kOfProcess = 1, kBestEffort = 2, kClassShift = 13, kLowest = 7;
  ::syscall(SYS_ioprio_set, kOfProcess, self, kBestEffort << kClassShift | kLowest);
}

}  // namespace

Writer::Writer(Folder folder, WriterOptions options)
    : folder_(std::move(folder)), path_(folder_->path()), files_(nullptr), options_(options) {}

Writer::Writer(std::filesystem::path folder, FileSystem& files, WriterOptions options)
    : path_(std::move(folder)), files_(&files), options_(options) {}

Writer::~Writer() {
  expect_no_more();
  thread_.request_stop();
  if (thread_.joinable()) thread_.join();
  if (!error_) return;
  try {
    std::rethrow_exception(error_);
  } catch (const std::exception& error) {
    log_error("a checkpoint was not saved: {}", error.what());
  }
}

std::filesystem::path Writer::save(Manifest manifest, const std::vector<TensorView>& model,
                                   const std::vector<TensorView>& optimizer, Part part) {
  std::filesystem::path path = path_ / name_of_step(manifest.step);
  auto mark = options_.mark ? options_.mark(manifest.step) : nullptr;
  if (!options_.background) {
    const Deadline deadline = Deadline::after(options_.timeout);
    write(manifest, TensorFiles(model, optimizer, part.index).content(), part, [&] {
      return !deadline.expired() && (!options_.others_live || options_.others_live());
    });
    if (folder_) saved_.push_back(path);
    return path;
  }
  std::unique_lock lock(mutex_);
  throw_if_failed();
  Snapshot& snapshot = idle_snapshot(lock);
  throw_if_failed();
  lock.unlock();
  snapshot.take(model, optimizer, std::min(options_.copy_threads, usable_cores()));
  lock.lock();
  pending_.push_back({std::move(manifest), &snapshot, std::move(part),
                      Deadline::after(options_.timeout).at(), /*may_fail=*/false,
                      std::move(mark)});
  if (!thread_.joinable())
    thread_ = std::jthread([this](std::stop_token stop) { write_on(std::move(stop)); });
  changed_.notify_all();
  return path;
}

void Writer::expect_no_more(std::chrono::milliseconds patience) {
  const std::lock_guard lock(mutex_);
  hurry(patience);
}

void Writer::hurry(std::chrono::milliseconds patience) {
  const auto until = Deadline::after(patience).at();
  for (Pending& pending : pending_) {
    pending.patience = std::min(pending.patience, until);
    pending.may_fail = true;
  }
  if (!folder_ && pending_.size() > 1)
    pending_.erase(pending_.begin() + 1, pending_.end());  // The first is being written.
  changed_.notify_all();
}

void Writer::write(const Manifest& manifest, const std::vector<OutgoingFile>& content,
                   const Part& part, const GoOnWaiting& go_on_waiting) {
  if (folder_)
    folder_->save(manifest, content, part, go_on_waiting);
  else
    write_part(*files_, path_, manifest.step, part, content);
}

void Writer::wait() {
  std::unique_lock lock(mutex_);
  wait_until(lock, [&] { return pending_.empty(); });
  throw_if_failed();
}

bool Writer::is_done_within(std::chrono::milliseconds time) {
  const Deadline deadline = Deadline::after(time);
  std::unique_lock lock(mutex_);
  const auto is_done = [&] { return pending_.empty(); };
  while (!changed_.wait_for(lock, std::min(kLookAgain, deadline.remaining()), is_done)) {
    if (deadline.expired()) return false;
    look_at_others(lock);
  }
  return true;
}

// The lock is free meanwhile.
void Writer::look_at_others(std::unique_lock<std::mutex>& lock) {
  if (!options_.others_live) return;
  lock.unlock();
  const bool all_live = options_.others_live();
  lock.lock();
  if (!all_live) hurry(kAfterALostWorker);
}

std::vector<std::filesystem::path> Writer::take_saved() {
  std::unique_lock lock(mutex_);
  throw_if_failed();
  return std::exchange(saved_, {});
}

// Returns the snapshot that is not pending. If neither is, it returns the first one, so that the
// second is only allocated when it is needed.
Snapshot& Writer::idle_snapshot(std::unique_lock<std::mutex>& lock) {
  const auto idle = [&]() -> Snapshot* {
    for (Snapshot& snapshot : snapshots_)
      if (std::none_of(pending_.begin(), pending_.end(),
                       [&](const Pending& each) { return each.snapshot == &snapshot; }))
        return &snapshot;
    return nullptr;
  };
  wait_until(lock, [&] { return idle() != nullptr; });
  return *idle();
}

template <typename Condition>
void Writer::wait_until(std::unique_lock<std::mutex>& lock, Condition condition) {
  const Deadline deadline = Deadline::after(options_.timeout);
  while (!changed_.wait_for(lock, kLookAgain, condition)) {
    if (deadline.expired())
      throw Error(
          ErrorCode::timeout, "checkpoint",
          fmt::format("the disk has not stored {} within {} s",
                      (path_ / name_of_step(pending_.front().manifest.step)).string(),
                      std::chrono::duration_cast<std::chrono::seconds>(options_.timeout).count()),
          "check the disk or its network; it may hang");
    look_at_others(lock);
  }
}

void Writer::throw_if_failed() {
  if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
}

// Writes everything that is pending, also after a request to stop.
void Writer::write_on(std::stop_token stop) {
  lower_priority();
  std::unique_lock lock(mutex_);
  while (changed_.wait(lock, stop, [&] { return !pending_.empty(); })) {
    lock.unlock();
    const std::exception_ptr error = write_first();
    lock.lock();
    if (error && !error_) error_ = error;
    pending_.pop_front();
    changed_.notify_all();
  }
}

// Writes the first pending save, which stays in the queue. Returns an error that
// training has to be told.
std::exception_ptr Writer::write_first() {
  Pending& pending = pending_.front();  // The reference stays valid when others are added.
  const auto may_go_on = [&] {
    const std::lock_guard lock(mutex_);
    return std::chrono::steady_clock::now() < pending.patience;
  };
  try {
    write(pending.manifest, pending.snapshot->files(pending.part.index), pending.part, may_go_on);
    const std::lock_guard lock(mutex_);
    if (folder_) saved_.push_back(path_ / name_of_step(pending.manifest.step));
  } catch (const Error& error) {
    const std::lock_guard lock(mutex_);
    const bool was_left = !folder_ && pending.may_fail;
    if (!was_left && error.code() != ErrorCode::peer_lost) return std::current_exception();
    log_warning("the checkpoint of step {} is abandoned: {}", pending.manifest.step, error.what());
  } catch (const std::exception&) {
    return std::current_exception();
  }
  return nullptr;
}

}  // namespace trireme::checkpoint
