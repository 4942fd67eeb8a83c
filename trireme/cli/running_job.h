// A command's way to a job that runs: it finds the job's coordinator, and asks it.
#pragma once
#include <trireme/base/deadline.h>
#include <trireme/base/json.h>
#include <trireme/cli/command_line.h>
#include <trireme/membership/token_file.h>
#include <memory>
#include <string>

namespace trireme::cli {

inline constexpr Milliseconds kJobTimeout{5000};  // The longest wait of a command for a job.

struct JobChoice {
  int launcher = 0;        // The process id of its launcher; 0: the only job of this host.
  std::string rendezvous;  // Or its place in etcd.
};
// Adds --job and --rendezvous. The choice must live until the command has run.
void add_job_choice(Command& command, JobChoice& choice);

struct RunningJob {
  std::string name;  // For messages: the launcher's process id, or the job's name in etcd.
  membership::TokenFile::Contents place;
};
// Throws Error(not_found | invalid_argument | timeout) naming the jobs that there are.
RunningJob find_job(const JobChoice& choice);

// A connection to the coordinator. One thread at a time may use it.
class JobCall {
 public:
  // Throws Error(timeout) naming the address.
  explicit JobCall(const RunningJob& job);
  ~JobCall();
  // Throws Error(timeout) naming the address.
  Json ask(Json question);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace trireme::cli
