// Proves from the logs of a run which samples it used (`trireme data audit`). No torch.
//
// The logs may be of several processes, one after the other: a rank 0 that took over writes the
// newest records again (the same record twice counts once), and one that went on from an older
// checkpoint says so, which takes back what came later. Where a process died, a line may be torn.
#pragma once
#include <trireme/train/ledger.h>
#include <filesystem>
#include <span>

namespace trireme {

struct LedgerAudit {
  SampleCount samples;
  int64_t finished_epochs = 0;
  int64_t batches = 0;        // That count.
  int64_t written_twice = 0;  // The same record again.
  int64_t taken_back = 0;     // Batches that a resume or a roll-back undid.
  int64_t continuations = 0;  // Resumes, regroupings and roll-backs after the start.
  std::vector<std::string>
      faults;  // Empty: each sample of each finished epoch was used exactly once.
  std::vector<std::string> notes;  // What a reader should know, and is no fault.

  bool passed() const { return faults.empty(); }
  std::string describe() const;
  Json to_json() const;
};

// `logs` in the order in which they were written, by the time in their records. Throws
// Error(not_found) if none of them holds a record of samples, Error(io) if one cannot be read.
LedgerAudit audit_logs(std::span<const std::filesystem::path> logs);
// The JSON-lines files of a run's folder, or the file itself. Throws Error(not_found) naming the
// path.
std::vector<std::filesystem::path> logs_of(const std::filesystem::path& run);

}  // namespace trireme
