// The reason why a job ended, and its exit code. Pure.
//
// The cause is the first worker that failed by itself. Others fail because of it: they end with
// 138 when they see the lost worker, abort if their programme does not catch peer_lost, or end by
// a signal that the supervisor sent.
#pragma once
#include <trireme/base/error.h>
#include <trireme/launch/process.h>
#include <trireme/membership/membership.h>
#include <trireme/watch/phase.h>
#include <chrono>
#include <optional>
#include <string>
#include <vector>

namespace trireme::launch {

struct WorkerEnd {
  int worker = 0;  // Of a side task: kFirstSideTask + its number.
  int pid = 0;
  std::string host;
  ProcessEnd end;
  std::chrono::milliseconds at{0};  // The time at which it was seen, from the job's start.
  // The last signal that the supervisor had sent to it: SIGTERM, SIGKILL, or 0.
  int signal_sent = 0;
  PhaseAt last;
  std::optional<int64_t> saving = {};  // The step whose checkpoint it was writing.
  bool said_goodbye = false;
  std::optional<membership::Task> task = {};  // Its task, if it is a side task.
};

struct JobEnd {
  // The supervisor's own workers, in the order in which their ends were seen. Workers without
  // which the job continued are left out.
  std::vector<WorkerEnd> workers;
  int stop_signal = 0;  // The signal that asked the job to stop; 0: none.
  bool any_step_finished = false;
  std::optional<membership::LostWorker>
      lost;  // The first lost worker that the coordinator saw, on any host.
  std::optional<membership::Failure> failure;  // The reason why no generation can form any more.
  // A member of the elastic job, on any node, had been asked to stop when it said goodbye.
  bool members_were_stopped = false;
  bool runs_own_programme = false;  // SupervisorOptions::is_own_programme.
};

struct Verdict {
  int exit_code = 0;
  std::string text;  // One line for people; empty if no worker failed.
};

// Whether a process that ended with this code of its own is worth another try: from 128 on, as
// under the restart policy ExitCode of Kubeflow. Codes below it are final. One that was asked to
// stop needs no other process in its place.
constexpr bool is_worth_another_try(int exit_code) {
  return exit_code >= 128 && exit_code != kExitStopped;
}

// Whether the job cannot continue after the worker's end.
bool is_failure(const WorkerEnd& end, bool stop_requested);
// The index in job.workers of the worker that failed first by itself, if one did.
std::optional<size_t> first_own_failure(const JobEnd& job);
// The exit code (base/error.h) is the cause's own exit code; 138 if it was killed or lost; 1 if it
// crashed (SEGV, ABRT, BUS, FPE, ILL) before any step was finished, else 138; 143 if no worker
// failed and the job was asked to stop; else 0.
Verdict judge(const JobEnd& job);

}  // namespace trireme::launch
