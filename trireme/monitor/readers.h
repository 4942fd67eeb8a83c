// The readers of a run that rank 0 opens: progress, JSON lines and TensorBoard.
#pragma once
#include <trireme/monitor/sink.h>
#include <filesystem>
#include <memory>

namespace trireme::monitor {

struct RunFiles {
  std::filesystem::path report, log, events;  // Empty: not written.
};

struct ReaderOptions {
  bool progress = true;
  bool json = false;  // Standard output belongs to the report, so progress goes to standard error.
};
// The readers open their files at the first event. Where the launcher draws the progress
// (TRIREME_PROGRESS), rank 0 does not.
std::unique_ptr<Sink> readers_of_rank_0(const RunFiles& files, const ReaderOptions& options);

}  // namespace trireme::monitor
