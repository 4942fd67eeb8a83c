// Proves from the logs of a run which samples it used (`trireme data audit`). No torch.
//
// The logs may come from several processes, one after the other. A new rank 0 writes the newest
// records again; the same record counts once. A process that continued from an older checkpoint
// says so, and that takes back later records. The last line of a killed process may be torn.
#pragma once
#include <trireme/train/ledger.h>
#include <filesystem>
#include <span>

namespace trireme {

struct LedgerAudit {
  SampleCount samples;
  int64_t finished_epochs = 0;
  int64_t batches = 0;        // Batches that count.
  int64_t left_out = 0;       // Their samples that were filtered out, or damaged.
  int64_t written_twice = 0;  // Records that were found again.
  int64_t taken_back = 0;     // Batches that a resume or a roll-back undid.
  int64_t continuations = 0;  // Resumes, regroupings and roll-backs after the start.
  // The errors. There are none if each sample of each finished epoch was used exactly once.
  std::vector<std::string> errors;
  std::vector<std::string> notes;  // Facts that a reader should know and that are no errors.

  bool passed() const { return errors.empty(); }
  std::string describe() const;
  Json to_json() const;
};

// `logs` must be in the order in which they were written, by the time in their records. Throws
// Error(not_found) if none of them holds a record of samples, and Error(io) if one cannot be read.
LedgerAudit audit_logs(std::span<const std::filesystem::path> logs);
// Returns the JSON-lines files of a run's folder, or the file itself. Throws Error(not_found) that
// names the path.
std::vector<std::filesystem::path> logs_of(const std::filesystem::path& run);

}  // namespace trireme
