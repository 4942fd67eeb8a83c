// Which job a process belongs to, and which launcher started it: told to workers by TRIREME_JOB,
// and written where jobs could meet without knowing each other (checkpoint/folder_lock.h).
#pragma once
#include <trireme/base/deadline.h>
#include <trireme/base/process_id.h>
#include <optional>
#include <string>
#include <vector>

namespace trireme::launch {

struct SupervisorOptions;

struct JobMark {
  std::string job;     // The same for all launchers of a job on several nodes; empty: none.
  int nodes = 1;       // Launchers in it.
  ProcessId launcher;  // pid 0: none.

  std::string to_text() const;
  static std::optional<JobMark> from_text(const std::string& text);  // Empty for what is none.
  static JobMark of_this_process();  // By TRIREME_JOB; without it of no job and no launcher.
};

// Of a launcher with these options: its own process starts the workers.
JobMark mark_of_job(const SupervisorOptions& options, const std::string& token);

// Processes of this user that this launcher started, as their environment says, and theirs.
std::vector<pid_t> processes_of(const JobMark& mark);
// Asks them to save and to end (SIGTERM), and kills those that live after `grace`. False: one does
// not end. Only for a mark whose launcher is gone.
bool end_orphans(const JobMark& mark, Milliseconds grace);

}  // namespace trireme::launch
