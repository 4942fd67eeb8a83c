// The readers of a run's events: the progress display, the JSON log and TensorBoard. Rank 0 writes
// the log of its own events, so that it is whole whatever happens to the launcher. The launcher
// draws the progress of rank 0, and adds its notices and the events of the other ranks to the log.
#pragma once
#include <trireme/monitor/append_file.h>
#include <trireme/monitor/readers.h>
#include <trireme/run/config.h>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>

namespace trireme::cli {

// Creates the run's folder. Throws Error(io) that names it.
monitor::RunFiles files_of_run(const Config& config);

// The files of the evaluator, beside those of the run.
struct EvaluatorFiles {
  std::filesystem::path curve, events;  // `events` is a folder; empty: not written.
};
// Creates the run's folder. Throws Error(io) that names it.
EvaluatorFiles files_of_evaluator(const Config& config);

// The readers in a launcher. One thread.
class LauncherReaders {
 public:
  // `log` may be empty.
  LauncherReaders(std::filesystem::path log, bool draws_progress);
  bool draws_progress() const { return progress_ != nullptr; }
  // An event of the launcher or of any rank. It draws the progress of rank 0, and writes down what
  // rank 0 does not know: notices, and the faults of other ranks. Throws Error(io) if the log
  // cannot be written.
  void take(const monitor::Told& told);

 private:
  const std::filesystem::path log_path_;
  std::optional<monitor::AppendFile> log_;  // Opened by the first event.
  std::unique_ptr<monitor::Sink> progress_;
};

}  // namespace trireme::cli
