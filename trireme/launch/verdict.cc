#include <trireme/launch/verdict.h>

#include <fmt/format.h>
#include <trireme/base/error.h>
#include <algorithm>
#include <csignal>
#include <tuple>

namespace trireme::launch {
namespace {

// Two ends within this time may be seen in the wrong order.
constexpr std::chrono::milliseconds kSimultaneous{500};

bool is_crash(int signal) {
  return signal == SIGSEGV || signal == SIGABRT || signal == SIGBUS || signal == SIGFPE ||
         signal == SIGILL;
}

// Whether the worker ended as it was told to, by the supervisor or by a stop of the whole job.
bool obeyed(const WorkerEnd& worker, bool stop_requested) {
  const ProcessEnd& end = worker.end;
  if (!end.by_signal)
    return end.code == kExitStopped &&
           (stop_requested || worker.signal_sent != 0 || worker.said_goodbye);
  if (end.code == SIGKILL) return worker.signal_sent == SIGKILL;
  if (end.code == SIGTERM) return stop_requested || worker.signal_sent != 0;
  return stop_requested && (end.code == SIGINT || end.code == SIGHUP);
}

bool exited_with(const WorkerEnd& worker, int code) {
  return !worker.end.by_signal && worker.end.code == code;
}

bool failed_by_itself(const WorkerEnd& worker, bool stop_requested) {
  return is_failure(worker, stop_requested) && !exited_with(worker, kExitRetry);
}

// The order of failures at the same moment: the kind with the smallest number is the likeliest
// cause. Nothing in a job makes a peer die by a signal from outside. A peer that does not handle
// peer_lost returns an error or aborts.
int kind_of_failure(const WorkerEnd& worker, const JobEnd& job) {
  if (worker.end.by_signal && !is_crash(worker.end.code)) return 0;
  if (job.lost && job.lost->worker == worker.worker) return 1;
  if (!worker.end.by_signal) return 2;
  return worker.end.code == SIGABRT ? 4 : 3;
}

const WorkerEnd* end_of(int worker, const JobEnd& job) {
  const auto found = std::ranges::find(job.workers, worker, &WorkerEnd::worker);
  return found == job.workers.end() ? nullptr : &*found;
}

// Whether a worker was lost whose end no process of this host explains: it is on another host, it
// fell silent, or it left without a goodbye.
bool has_unexplained_lost_worker(const JobEnd& job) {
  if (!job.lost) return false;
  const WorkerEnd* const end = end_of(job.lost->worker, job);
  if (!end) return true;
  return !failed_by_itself(*end, job.stop_signal != 0) && !exited_with(*end, kExitRetry);
}

template <typename Process>  // A WorkerEnd or a LostWorker.
std::string name_of(const Process& process) {
  return process.task ? process.task->name() : fmt::format("worker {}", process.worker);
}

template <typename Process>
std::string who(const Process& process) {
  return fmt::format("{} (pid {}, host {})", name_of(process), process.pid, process.host);
}

std::string where(const PhaseAt& at) {
  return at.phase == Phase::starting ? std::string() : fmt::format(" in {}", at.brief());
}

// " (it had been there for 0.3 s, and worker 0 (host a) waits for it in ...)"
std::string around(int worker, const JobEnd& job) {
  const bool is_known = job.lost && job.lost->worker == worker && !job.lost->circumstances.empty();
  return is_known ? fmt::format(" ({})", job.lost->circumstances) : std::string();
}

std::string advice(int exit_code, const JobEnd& job) {
  if (is_worth_another_try(exit_code)) return " (try again: the job can be restarted)";
  if (exit_code != kExitUsage) return {};
  return job.runs_own_programme
             ? " (the programme's use of Trireme, or its own arguments, are wrong: see the "
               "worker's message)"
             : " (the command line or configuration is wrong: see the worker's message)";
}

Verdict of_lost_worker(const JobEnd& job) {
  const membership::LostWorker& lost = *job.lost;
  if (const WorkerEnd* const end = end_of(lost.worker, job); end && exited_with(*end, kExitOk)) {
    return {kExitFailed, fmt::format("{} ended{} with exit code 0 but without saying goodbye, so "
                                     "the others lost it; job ends with {} "
                                     "(try: World::leave() before the programme ends)",
                                     who(lost), where(lost.last), static_cast<int>(kExitFailed))};
  }
  return {kExitRetry, fmt::format("{} was lost{}: {}{}; job ends with {}{}", who(lost),
                                  where(lost.last), lost.reason, around(lost.worker, job),
                                  static_cast<int>(kExitRetry), advice(kExitRetry, job))};
}

// The verdict on an elastic job that cannot continue with its members.
Verdict of_no_generation(const JobEnd& job) {
  const membership::Failure& failure = *job.failure;
  const int code = exit_code_of(failure.error());
  return {code, fmt::format("{}; job ends with {}{}", failure.what, code,
                            code == kExitRetry ? advice(code, job)
                                               : fmt::format(" (try: {})", failure.remedy))};
}

Verdict of_failure(const WorkerEnd& cause, const JobEnd& job) {
  const std::string subject = who(cause);
  const std::string place = where(cause.last) + around(cause.worker, job);
  if (!cause.end.by_signal) {
    return {cause.end.code,
            fmt::format("{} failed with {}{}; job ends with {}{}", subject, cause.end.describe(),
                        place, cause.end.code, advice(cause.end.code, job))};
  }
  if (is_crash(cause.end.code) && !job.any_step_finished) {
    return {kExitFailed,
            fmt::format("{} was {}{} before the first step was finished; job ends with {} (it "
                        "would crash again)",
                        subject, cause.end.describe(), place, static_cast<int>(kExitFailed))};
  }
  return {kExitRetry, fmt::format("{} was {}{}; job ends with {}{}", subject, cause.end.describe(),
                                  place, static_cast<int>(kExitRetry), advice(kExitRetry, job))};
}

Verdict of_stop(const JobEnd& job) {
  std::string text = fmt::format("the job was asked to stop ({})", signal_name(job.stop_signal));
  for (const WorkerEnd& worker : job.workers) {
    if (worker.end.by_signal && worker.end.code == SIGKILL) {
      text += fmt::format("; {} did not end in time and was killed{}", who(worker),
                          where(worker.last));
    }
  }
  return {kExitStopped, fmt::format("{}; job ends with {}", text, static_cast<int>(kExitStopped))};
}

// "; the checkpoint of step 40 was cut off while worker 2 wrote it, and ..."
std::string saves_cut_off(const JobEnd& job) {
  std::string text;
  for (const WorkerEnd& worker : job.workers) {
    if (!worker.saving || !worker.end.by_signal) continue;
    text += fmt::format(
        "; the checkpoint of step {} was cut off while {} wrote it, and the ones before it are "
        "whole{}",
        *worker.saving, name_of(worker),
        worker.signal_sent == SIGKILL ? " (try: a longer launch.stop_grace)" : "");
  }
  return text;
}

Verdict verdict_on(const JobEnd& job) {
  const bool all_succeeded = std::ranges::all_of(
      job.workers, [](const WorkerEnd& worker) { return exited_with(worker, kExitOk); });
  if (all_succeeded && !job.workers.empty() && job.stop_signal == 0) return {};
  const std::optional<size_t> cause = first_own_failure(job);
  const bool killed_from_outside = cause && kind_of_failure(job.workers[*cause], job) == 0;
  const bool asked_to_stop = job.stop_signal != 0;
  // The failure is the cause, and the workers' own ends are not, unless one failed for good.
  const bool failed_for_good = cause && !job.workers[*cause].end.by_signal &&
                               !is_worth_another_try(job.workers[*cause].end.code);
  if (job.failure && !asked_to_stop &&
      (!failed_for_good || exit_code_of(job.failure->error()) != kExitRetry))
    return of_no_generation(job);
  // A worker that ends with a code of its own does so because of no other: a lost one makes it end
  // with 138.
  const bool has_own_cause = cause && (!job.workers[*cause].end.by_signal || killed_from_outside);
  if (!has_own_cause && !asked_to_stop && has_unexplained_lost_worker(job))
    return of_lost_worker(job);
  if (cause) return of_failure(job.workers[*cause], job);
  if (asked_to_stop) return of_stop(job);
  for (const WorkerEnd& worker : job.workers) {
    if (exited_with(worker, kExitRetry)) return of_failure(worker, job);
  }
  for (const WorkerEnd& worker : job.workers) {
    if (exited_with(worker, kExitStopped)) {
      return {kExitStopped, fmt::format("{} was asked to stop; job ends with {}", who(worker),
                                        static_cast<int>(kExitStopped))};
    }
  }
  if (job.workers.empty() && job.members_were_stopped)
    return {kExitStopped, fmt::format("the members on other nodes were asked to stop; job ends "
                                      "with {}",
                                      static_cast<int>(kExitStopped))};
  return {};
}

}  // namespace

bool is_failure(const WorkerEnd& worker, bool stop_requested) {
  return !exited_with(worker, kExitOk) && !obeyed(worker, stop_requested);
}

std::optional<size_t> first_own_failure(const JobEnd& job) {
  const bool stop_requested = job.stop_signal != 0;
  std::vector<size_t> failed;
  for (size_t i = 0; i < job.workers.size(); ++i) {
    if (failed_by_itself(job.workers[i], stop_requested)) failed.push_back(i);
  }
  if (failed.empty()) return std::nullopt;
  const auto at = [&](size_t i) { return job.workers[i].at; };
  const auto latest = at(*std::ranges::min_element(failed, {}, at)) + kSimultaneous;
  std::erase_if(failed, [&](size_t i) { return at(i) > latest; });
  return *std::ranges::min_element(failed, {}, [&](size_t i) {
    return std::tuple(kind_of_failure(job.workers[i], job), at(i), i);
  });
}

Verdict judge(const JobEnd& job) {
  Verdict verdict = verdict_on(job);
  if (!verdict.text.empty()) verdict.text += saves_cut_off(job);
  return verdict;
}

}  // namespace trireme::launch
