// Saves without a stall: a save copies, a thread of low priority writes. No torch.
//
// Two snapshots in memory: while one is written the next may be taken; the second one is only made
// when a save finds the first one busy. DeepFreeze (Nicolae et al. 2020) and CheckFreq (Mohan et
// al. 2021) split a checkpoint into snapshot and persist in the same way.
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
  bool background = true;  // Otherwise save() returns once the checkpoint is durable, and needs no
                           // memory for a snapshot.
  // Whether all who write the other parts of what is being saved may still do so. Asked by the
  // thread that calls, while it waits; may throw.
  GoOnWaiting others_live = {};
  // Called when a save of this step begins; the result is kept until that has ended.
  std::function<std::shared_ptr<void>(int64_t step)> mark = {};
  int copy_threads = 2;  // As many as fill the memory's bandwidth on small machines.
  std::chrono::milliseconds timeout = std::chrono::minutes(
      10);  // For a write that a save or wait() waits for, and for the other parts.
};

// One thread calls it. Errors of the writing thread come out of the next call, once; older
// checkpoints stay then. A checkpoint that another part did not come to is none: it is given up
// with a warning.
class Writer {
 public:
  explicit Writer(Folder folder, WriterOptions options = {});
  // Of parts after the first, into a folder that the process of the first one has.
  Writer(std::filesystem::path folder, FileSystem& files, WriterOptions options);
  // expect_no_more(), and waits for what is being written; errors that nobody asked for are logged.
  ~Writer();
  Writer(const Writer&) = delete;
  Writer& operator=(const Writer&) = delete;

  // Returns when the tensors have been copied: they may change then. Waits for the older write if
  // both snapshots are busy. Returns the path that the checkpoint will have. Of a part after the
  // first the manifest's step is enough. Throws as Folder::save() does, for this save or an earlier
  // one (then nothing was copied), Error(timeout).
  std::filesystem::path save(Manifest manifest, const std::vector<TensorView>& model,
                             const std::vector<TensorView>& optimizer, Part part = {});
  // Others' parts of saves until now are waited for so long only: who writes them may be gone, or
  // go. Of a part after the first, what has not been begun is dropped, and what could not be
  // written is no error.
  static constexpr std::chrono::seconds kAfterALoss{5};
  void expect_no_more(std::chrono::milliseconds patience = kAfterALoss);
  // Until all is durable. Throws likewise.
  void wait();
  // Whether nothing is left to write, or soon: waits so long. What failed is told by the next call.
  bool is_done_within(std::chrono::milliseconds time);
  // The checkpoints that have become durable since the last call, oldest first. Throws an error
  // that is due.
  std::vector<std::filesystem::path> take_saved();
  const std::filesystem::path& path() const { return path_; }
  const Folder& folder() const { return *folder_; }  // Of the first part.

 private:
  struct Pending {
    Manifest manifest;
    Snapshot* snapshot;
    Part part;
    std::chrono::steady_clock::time_point patience;  // With the other parts.
    bool may_fail = false;
    std::shared_ptr<void> mark = {};
  };
  void write_on(std::stop_token stop);
  void write(const Manifest& manifest, const std::vector<OutgoingFile>& content, const Part& part,
             const GoOnWaiting& go_on_waiting);
  std::exception_ptr write_first();
  void hurry(std::chrono::milliseconds patience);  // Call it with the mutex.
  void throw_if_failed();                          // Call it with the mutex.
  Snapshot& idle_snapshot(std::unique_lock<std::mutex>& lock);
  template <typename Condition>
  void wait_until(std::unique_lock<std::mutex>& lock, Condition condition);

  std::optional<Folder> folder_;  // Of the first part.
  const std::filesystem::path path_;
  FileSystem* const files_;  // Of another part.
  const WriterOptions options_;
  std::mutex mutex_;
  std::condition_variable_any changed_;
  std::deque<Pending> pending_;  // The first one is being written.
  std::array<Snapshot, 2> snapshots_;
  std::vector<std::filesystem::path> saved_;
  std::exception_ptr error_;
  std::jthread thread_;  // Last: it ends before what it uses.
};

}  // namespace trireme::checkpoint
