// Why a job ended, and with which exit code. Pure.
//
// The cause is the first worker that failed by itself. Others fail because of it: they end with 138
// when they see the loss, abort if nobody catches their peer_lost, or end by a signal that the
// supervisor sent.
#pragma once
#include <trireme/launch/membership.h>
#include <trireme/launch/phase.h>
#include <trireme/launch/process.h>
#include <chrono>
#include <optional>
#include <string>
#include <vector>

namespace trireme::launch {

struct WorkerEnd {
  int worker = 0;
  int pid = 0;
  std::string host;
  ProcessEnd end;
  std::chrono::milliseconds at{0};  // When it was seen, from the start of the job.
  int signal_sent =
      0;  // The last one the supervisor had sent it before: SIGTERM, SIGKILL, or none.
  PhaseAt last;
  std::optional<int64_t> saving = {};  // The step whose checkpoint it was writing.
  bool said_goodbye = false;
};

struct JobEnd {
  std::vector<WorkerEnd>
      workers;          // The supervisor's own, in the order in which their ends were seen.
  int stop_signal = 0;  // The signal that asked the job to stop, if one did.
  bool any_step_finished = false;
  std::optional<LostWorker> lost;  // The first one that the coordinator saw, on any host.
  std::optional<Failure> failure;  // Of an elastic job: why no generation could form any more.
};

struct Verdict {
  int exit_code = 0;
  std::string text;  // One line for people; empty if all went well.
};

// Whether the worker's end means that the job cannot go on.
bool is_failure(const WorkerEnd& end, bool stop_requested);
// The index in job.workers of the one that failed first by itself, if one did.
std::optional<size_t> first_own_failure(const JobEnd& job);
// The exit code is (base/error.h): the cause's own exit code; 138 if it was killed or lost; 1 if it
// crashed (SEGV, ABRT, BUS, FPE, ILL) before any step was finished, else 138; 143 if nothing failed
// and the job was asked to stop; else 0.
Verdict judge(const JobEnd& job);

}  // namespace trireme::launch
