#include <fmt/format.h>
#include <trireme/base/error.h>
#include <trireme/base/host_name.h>
#include <trireme/launch/supervision.h>
#include <algorithm>

namespace trireme::launch {

void Supervision::take_ends() {
  const size_t first_new = end_.workers.size();
  std::vector<pid_t> running;
  for (Worker& worker : workers_) {
    if (worker.ended) continue;
    if (const std::optional<ProcessEnd> end = worker.process.poll_end()) {
      worker.ended = true;
      const WorkerEnd how = end_of(worker, *end);
      worker.counts = !continues_without(worker, how);
      if (worker.counts) end_.workers.push_back(how);
    } else {
      running.push_back(worker.process.pid());
    }
  }
  descendants_.reap_ended(running);
  report_failures(first_new);
}

WorkerEnd Supervision::end_of(const Worker& worker, const ProcessEnd& end) const {
  return {.worker = worker.number,
          .pid = worker.process.pid(),
          .host = own_host_name(),
          .end = end,
          .at = std::chrono::duration_cast<Milliseconds>(Clock::now() - started_),
          .signal_sent = worker.signal_sent,
          .last = last_phase(worker),
          .saving = step_being_saved(worker),
          .said_goodbye = coordinator_ && !options_.elastic && !worker.side_task &&
                          coordinator_->said_goodbye(worker.number),
          .task = worker.side_task ? std::optional(options_.roles.task_of(*worker.side_task))
                                   : std::nullopt};
}

std::optional<int64_t> Supervision::step_being_saved(const Worker& worker) const {
  const auto seen = board_.look_at(worker.identity);
  return seen ? seen->saving : std::nullopt;
}

PhaseAt Supervision::last_phase(const Worker& worker) const {
  if (const auto seen = board_.look_at(worker.identity)) return seen->at;
  if (!coordinator_) return {};
  if (worker.side_task) return coordinator_->last_phase_of_task(*worker.side_task);
  if (!options_.elastic) return coordinator_->last_phase(worker.number);
  return coordinator_->last_phase_of_process(worker.identity).value_or(PhaseAt{});
}

// An elastic job continues when a worker was killed or lost. It ends when a worker failed for
// good: a replacement would fail too.
bool Supervision::continues_without(const Worker& worker, const WorkerEnd& end) {
  if (worker.side_task) return continues_without_task(worker, end);
  if (!options_.elastic) return false;
  if (coordinator_ && coordinator_->was_dismissed(worker.identity)) return true;
  const bool finished = !end.end.by_signal && end.end.code == kExitOk;
  finishing_ = finishing_ || finished;
  if (finished || stop_asked_ || lost_ || failed_for_good()) return false;
  const bool was_member = has_been_member(worker);
  if (!end.end.by_signal && !is_worth_another_try(end.end.code))
    return !was_member && continues_without_newcomer(worker, end);
  int& early = early_deaths_[worker.number];
  early = was_member ? 0 : early + 1;
  if (early >= (finds_no_coordinator(end) ? 1 : kEarlyDeaths)) {
    // The coordinator may be gone, and newcomers may not know the next one: the members continue.
    finishing_ = finishing_ || !coordinator_;
    return !coordinator_ && workers_live();
  }
  if (coordinator_) coordinator_->report_lost_process(worker.identity, end.end.describe());
  tell_lost(worker, end);
  return true;
}

// Without a coordinator in this launcher, the worker's page tells whether it was a member.
bool Supervision::has_been_member(const Worker& worker) const {
  if (coordinator_) return coordinator_->last_phase_of_process(worker.identity).has_value();
  const auto seen = board_.look_at(worker.identity);
  return seen && seen->at.step >= 0;
}

bool Supervision::members_live() const {
  return std::ranges::any_of(workers_, [this](const Worker& worker) {
    return !worker.ended && !worker.side_task && has_been_member(worker);
  });
}

// A newcomer that cannot take part (it differs from the job, or cannot read its data) would fail
// again, so no other process replaces it. The others continue if they are enough.
bool Supervision::continues_without_newcomer(const Worker& worker, const WorkerEnd& end) {
  if (!members_live()) return false;
  barred_.insert(worker.number);
  const bool are_enough = options_.nodes > 1 || wanted_here() >= options_.elastic->minimum;
  say(fmt::format(
      "worker process {} (pid {}) ended with {} before it took part (its message says "
      "why); {}",
      worker.number, end.pid, end.end.describe(),
      are_enough ? "the job continues without it, and no other process replaces it"
                 : fmt::format("without it the job has fewer than {} workers, and ends",
                               options_.elastic->minimum)));
  return are_enough;
}

// Whether the next replacement would find no coordinator either. This one asked for it for
// comm.timeout and gave up; the coordinator is on another host, and no worker here is a member.
bool Supervision::finds_no_coordinator(const WorkerEnd& end) const {
  return !coordinator_ && !options_.etcd && !end.end.by_signal && !members_live();
}

void Supervision::report_failures(size_t first_new) {
  const auto failed = std::find_if(
      end_.workers.begin() + static_cast<std::ptrdiff_t>(first_new), end_.workers.end(),
      [&](const WorkerEnd& end) { return is_failure(end, stop_asked_.has_value()); });
  if (failed == end_.workers.end() || lost_) return;
  // In an elastic job the others are only asked to end: they need not know the reason.
  if (coordinator_ && !options_.elastic) {
    end_.lost = coordinator_->first_lost();  // The coordinator's own finding, before the report.
    const std::optional<size_t> likely_cause = first_own_failure(end_);
    const WorkerEnd& cause = likely_cause ? end_.workers[*likely_cause] : *failed;
    if (cause.task)
      coordinator_->report_lost_task(cause.worker - membership::kFirstSideTask,
                                     cause.end.describe());
    else
      coordinator_->report_lost(cause.worker, cause.end.describe());
  }
  note_lost_worker();
}

}  // namespace trireme::launch
