// Saves without stopping training: save() copies the tensors, and a thread of low priority writes
// the copy.
//
// There are two snapshots in memory, so that the next one can be taken while one is written. The
// second is only allocated when a save finds the first one busy. DeepFreeze (Nicolae et al. 2020)
// and CheckFreq (Mohan et al. 2021) split a checkpoint into snapshot and persist in the same way.
#pragma once
#include <trireme/checkpoint/folder.h>
#include <trireme/checkpoint/snapshot.h>
#include <array>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <exception>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

namespace trireme::checkpoint {

struct WriterOptions {
  // If false, save() returns once the checkpoint is durable, and needs no memory for a snapshot.
  bool background = true;
  // Returns true while all writers of the other parts may still write them. The calling thread
  // asks while it waits. The function may throw.
  GoOnWaiting others_live = {};
  // Called when a save of this step begins. The result is kept until that save has ended.
  std::function<std::shared_ptr<void>(int64_t step)> mark = {};
  // Two threads use the full memory bandwidth of small machines.
  int copy_threads = 2;
  // The limit for a write that a save or wait() waits for, and for the other parts.
  std::chrono::milliseconds timeout = std::chrono::minutes(10);
};

// One thread uses it. An error of the writing thread is thrown once, by the next call; older
// checkpoints then stay as they were. A checkpoint for which another part did not arrive is not
// finished: it is abandoned with a warning.
class Writer {
 public:
  explicit Writer(Folder folder, WriterOptions options = {});
  // A writer of a part after the first, into a folder that the process of the first part holds.
  Writer(std::filesystem::path folder, FileSystem& files, WriterOptions options);
  // Calls expect_no_more() and waits for the write in progress. Errors that no call
  // has thrown are logged.
  ~Writer();
  Writer(const Writer&) = delete;
  Writer& operator=(const Writer&) = delete;

  // Returns when the tensors have been copied; they may change from then on. Waits for the older
  // write if both snapshots are busy. Returns the path that the checkpoint will have. For a part
  // after the first, only the manifest's step is needed. Throws the errors of Folder::save(), for
  // this save or an earlier one (then nothing was copied), and Error(timeout).
  std::filesystem::path save(Manifest manifest, const std::vector<TensorView>& model,
                             const std::vector<TensorView>& optimizer, Part part = {});
  // Limits the wait for other parts of the saves until now to `patience`, because their writers
  // may be lost or leave. For a part after the first, saves that have not begun are dropped, and a
  // failed write is no error.
  static constexpr std::chrono::seconds kAfterALostWorker{5};
  void expect_no_more(std::chrono::milliseconds patience = kAfterALostWorker);
  // Waits until all saves are durable. Throws the errors of save().
  void wait();
  // Returns true if nothing is left to write; waits up to `time` for that, and not for the parts
  // of writers that are lost. A failure is thrown by the next call.
  bool is_done_within(std::chrono::milliseconds time);
  // Returns the checkpoints that have become durable since the last call, oldest first. Throws the
  // error of a save that failed.
  std::vector<std::filesystem::path> take_saved();
  const std::filesystem::path& path() const { return path_; }
  const Folder& folder() const { return *folder_; }  // Exists only for the first part.

 private:
  struct Pending {
    Manifest manifest;
    Snapshot* snapshot;
    Part part;
    // The time until which this save waits for the other parts.
    std::chrono::steady_clock::time_point patience;
    bool may_fail = false;
    std::shared_ptr<void> mark = {};
  };
  void write_on(std::stop_token stop);
  void write(const Manifest& manifest, const std::vector<OutgoingFile>& content, const Part& part,
             const GoOnWaiting& go_on_waiting);
  std::exception_ptr write_first();
  void hurry(std::chrono::milliseconds patience);  // The caller holds the mutex.
  void look_at_others(std::unique_lock<std::mutex>& lock);
  void throw_if_failed();  // The caller holds the mutex.
  Snapshot& idle_snapshot(std::unique_lock<std::mutex>& lock);
  template <typename Condition>
  void wait_until(std::unique_lock<std::mutex>& lock, Condition condition);

  std::optional<Folder> folder_;  // Exists only for the first part.
  const std::filesystem::path path_;
  FileSystem* const files_;  // Used only for a part after the first.
  const WriterOptions options_;
  std::mutex mutex_;
  std::condition_variable_any changed_;
  std::deque<Pending> pending_;  // The first one is being written.
  std::array<Snapshot, 2> snapshots_;
  std::vector<std::filesystem::path> saved_;
  std::exception_ptr error_;
  std::jthread thread_;  // The last member, so that it ends before those that it uses.
};

}  // namespace trireme::checkpoint
