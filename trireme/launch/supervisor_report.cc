#include <fmt/format.h>
#include <signal.h>
#include <trireme/base/error.h>
#include <trireme/base/log.h>
#include <trireme/base/stack_dump.h>
#include <trireme/base/standard_error.h>
#include <trireme/launch/supervision.h>

namespace trireme::launch {

// Prints the notices, and asks the named worker to print its stack on its standard error, if it
// handles the signal (base/stack_dump.h).
void Supervision::tell_notices() {
  if (!coordinator_ || lost_ || stop_asked_) return;
  for (membership::Notice& notice : coordinator_->take_notices()) {
    tell(std::move(notice.record), notice.text);
    for (const Worker& worker : workers_)
      if (worker.process.pid() == notice.pid && !worker.ended && dumps_stack_on_signal(notice.pid))
        ::tgkill(notice.pid, notice.pid, kStackDumpSignal);  // The main thread dumps its stack.
  }
}

void Supervision::tell_events() {
  if (!coordinator_ || !options_.on_event) return;
  const membership::EventBatch batch = coordinator_->take_events();
  if (batch.dropped > 0)
    log_warning("launch: {} events of workers were dropped: they came too fast", batch.dropped);
  try {
    for (const monitor::Told& told : batch.events) options_.on_event(told);
  } catch (const std::exception& error) {  // The disk may be full. The workers continue.
    log_warning("launch: events of workers are not in the log: {}", brief(error));
  }
}

void Supervision::tell_lost(const Worker& worker, const WorkerEnd& end) const {
  const auto now = board_.look_at(worker.identity).value_or(PhaseNow{end.last, Clock::now(), {}});
  const membership::LostMember unknown{worker.number, ""};
  const membership::LostMember lost =
      coordinator_ ? coordinator_->lost_member(worker.identity).value_or(unknown) : unknown;
  Json record = membership::record_of("lost", {lost.worker, lost.worker, end.pid, end.host, now},
                                      {}, Clock::now());
  record.erase("waiting");
  record["reason"] = end.end.describe();
  record["circumstances"] = lost.circumstances;
  tell(
      std::move(record),
      fmt::format("worker process {} (pid {}) was lost{}: {}; {}the job continues", worker.number,
                  end.pid,
                  end.last.phase == Phase::starting ? std::string() : " in " + end.last.describe(),
                  end.end.describe(),
                  lost.circumstances.empty() ? std::string() : lost.circumstances + "; "));
}

void Supervision::tell(Json record, const std::string& text) const {
  say(text);
  record["text"] = text;
  try {
    if (options_.on_notice) options_.on_notice(record);
  } catch (const std::exception& error) {  // The disk may be full. The workers continue.
    log_warning("launch: the line above is not in the log: {}", brief(error));
  }
}

void Supervision::tell_lost_task(const WorkerEnd& end, const std::string& what_now) const {
  Json record = {{"kind", "lost"},
                 {"role", end.task->role},
                 {"index", end.task->index},
                 {"pid", end.pid},
                 {"host", end.host},
                 {"phase", std::string(to_string(end.last.phase))},
                 {"reason", end.end.describe()}};
  tell(std::move(record), fmt::format("{} (pid {}) was lost: {}; {}", end.task->name(), end.pid,
                                      end.end.describe(), what_now));
}

void Supervision::say(const std::string& text) {
  write_to_standard_error(fmt::format("trireme: {}\n", text));
}

// The record of the job's end. It tells where the worker was that caused the end.
Json Supervision::record_of_end(const Verdict& verdict) const {
  Json record = {{"kind", "end"}, {"exit_code", verdict.exit_code}};
  if (const auto cause = first_own_failure(end_)) {
    const WorkerEnd& end = end_.workers[*cause];
    if (end.task)
      record.update({{"role", end.task->role}, {"index", end.task->index}});
    else
      record["worker"] = end.worker;
    record.update({{"pid", end.pid},
                   {"host", end.host},
                   {"phase", std::string(to_string(end.last.phase))},
                   {"step", end.last.step},
                   {"collective", end.last.collective.number},
                   {"reason", end.end.describe()}});
  }
  return record;
}

}  // namespace trireme::launch
