// The mark of a job: which job a process belongs to, and which launcher started it. TRIREME_JOB
// gives it to workers. It is written where different jobs could meet (checkpoint/folder_lock.h).
#pragma once
#include <trireme/base/deadline.h>
#include <trireme/base/process_id.h>
#include <optional>
#include <string>
#include <vector>

namespace trireme::watch {

struct JobMark {
  std::string job;     // The same text for all launchers of the job; empty: no job.
  int nodes = 1;       // The number of launchers in the job.
  ProcessId launcher;  // pid 0: no launcher.

  std::string to_text() const;
  static std::optional<JobMark> from_text(const std::string& text);  // Empty: `text` is no mark.
  // Reads TRIREME_JOB. Without that variable the mark names no job and no launcher.
  static JobMark of_this_process();
};

// The processes of this user that the mark's launcher started, and their descendants. Their
// environment carries the mark.
std::vector<pid_t> processes_of(const JobMark& mark);
// Asks these processes to save and end (stop_request.h), and kills those that live after `grace`.
// Returns false if one does not end. Call it only for a mark whose launcher is gone.
bool end_orphans(const JobMark& mark, Milliseconds grace);

}  // namespace trireme::watch
