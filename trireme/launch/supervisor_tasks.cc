// Side tasks: tasks of other roles than worker (membership/roles.h).
#include <fmt/format.h>
#include <trireme/base/error.h>
#include <trireme/base/units.h>
#include <trireme/launch/supervision.h>
#include <algorithm>
#include <csignal>

namespace trireme::launch {
namespace {

// A lost task that still lives has this time to end by itself.
constexpr Milliseconds kOwnEndOfTask{2000};

// A replacement of a task that failed for good would fail too.
bool ended_for_good(const WorkerEnd& end) {
  return !end.end.by_signal && !is_worth_another_try(end.end.code);
}

bool is_done_or_told(const WorkerEnd& end) {
  const bool wants_a_retry = !end.end.by_signal && is_worth_another_try(end.end.code);
  return wants_a_retry || !is_failure(end, /*stop_requested=*/true);
}

}  // namespace

void Supervision::start_side_tasks() {
  if (options_.roles.empty()) return;
  for (const int number : options_.roles.on_node(options_.nodes, options_.node))
    start_side_task(number);
  if (!coordinator_)
    watch_.emplace(options_.rendezvous, options_.etcd, token_, options_.join_timeout);
}

void Supervision::start_side_task(int number) {
  const membership::Role& role = options_.roles.role_of(number);
  std::shared_ptr<watch::PhasePage> page = watch::PhasePage::for_child();
  Worker task{membership::kFirstSideTask + number, membership::kFirstSideTask + number,
              ChildProcess(role.command.empty() ? options_.command : role.command,
                           side_task_environment(options_, facts_for(*page), number,
                                                 environment_of_this_process()),
                           page->descriptor())};
  task.side_task = number;
  std::erase_if(workers_, [&](const Worker& before) { return before.side_task == number; });
  board_.add(task.identity, std::move(page));
  relay_.add_worker(task.number, task.process.release_output(),
                    task.process.release_error_output(), options_.roles.task_of(number).name());
  workers_.push_back(std::move(task));
}

// Whether the job continues after the end of this side task.
bool Supervision::continues_without_task(const Worker& task, const WorkerEnd& end) {
  const int number = *task.side_task;
  const membership::OnLoss on_loss = options_.roles.role_of(number).on_loss;
  const bool finished = !end.end.by_signal && end.end.code == kExitOk;
  const bool for_good = ended_for_good(end);
  if (side_tasks_end_ && is_done_or_told(end)) return true;
  // The workers have ended well, so the loss of a task that would be replaced costs nothing.
  if (side_tasks_end_ && on_loss == membership::OnLoss::replace && !for_good) return true;
  if (on_loss == membership::OnLoss::tell || on_loss == membership::OnLoss::replace_or_tell) {
    if (finished || stop_asked_ || lost_) return true;
    if (on_loss == membership::OnLoss::replace_or_tell && !for_good && restart_later(task, end))
      return true;
    if (coordinator_) coordinator_->report_lost_task(number, end.end.describe());
    tell_lost_task(end, "the job continues without it");
    return true;
  }
  if (finished || stop_asked_ || lost_ || side_tasks_end_) return false;
  if (for_good || (on_loss == membership::OnLoss::end_generation && !options_.elastic))
    return false;
  return restart_later(task, end);
}

bool Supervision::restart_later(const Worker& task, const WorkerEnd& end) {
  const int number = *task.side_task;
  const bool had_joined = !coordinator_ || coordinator_->task_has_joined(number, end.pid);
  const auto lived = std::chrono::duration_cast<Milliseconds>(Clock::now() - task.started);
  const auto pause = restarts_[number].after(had_joined, lived);
  if (!pause) {
    say(
        fmt::format("{} died {} times in a row soon after its start, so no other process gets its "
                    "task",
                    end.task->name(), restarts_[number].early()));
    return false;
  }
  if (coordinator_) coordinator_->report_lost_task(number, end.end.describe());
  restart_at_[number] = Clock::now() + *pause;
  tell_lost_task(end, *pause > Milliseconds(0) ? fmt::format("another process gets its task in {}",
                                                             format_duration(*pause))
                                               : "another process gets its task");
  return true;
}

void Supervision::watch_side_tasks() {
  if (options_.roles.empty()) return;
  end_lost_tasks();
  if (!options_.elastic) end_the_stopped();
  restart_tasks();
  if (side_tasks_end_) ask_side_tasks_to_end();
  if (!side_tasks_end_ && !workers_live() && !start_again_at_ && all_workers_ended())
    end_side_tasks();
}

// Ends side tasks that the coordinator has lost, but that still live: they are silent.
void Supervision::end_lost_tasks() {
  if (!coordinator_) return;
  for (const int number : coordinator_->take_lost_tasks())
    for (Worker& task : workers_)
      if (task.side_task == number && !task.ended) {
        task.end_at = Clock::now() + kOwnEndOfTask;
        task.lost_by = "the coordinator lost it";
      }
  for (Worker& task : workers_) {
    if (!task.side_task || task.ended || !task.end_at || Clock::now() < *task.end_at) continue;
    task.end_at.reset();
    if (!coordinator_->task_is_present(*task.side_task)) end(task, task.lost_by);
  }
}

void Supervision::restart_tasks() {
  const auto due = std::ranges::find_if(
      restart_at_, [](const auto& each) { return each.second <= Clock::now(); });
  if (due == restart_at_.end()) return;
  const int number = due->first;
  restart_at_.erase(due);
  if (side_tasks_end_ || stop_asked_ || lost_) return;
  try {
    start_side_task(number);
  } catch (const Error& error) {
    const auto pause = restarts_[number].after(false, Milliseconds(0));
    say(fmt::format("{} cannot be started again: {}", options_.roles.task_of(number).name(),
                    error.what()));
    if (pause) {
      restart_at_[number] = Clock::now() + std::max(*pause, RestartRules{}.first_pause);
      return;
    }
    end_.failure = {
        ErrorCode::peer_lost,
        fmt::format("{} could not be started again", options_.roles.task_of(number).name()),
        "run the job again; it continues from its last checkpoint"};
    note_lost_worker();
  }
}

// Whether no worker of the job is at work any more, on any node. Called once no worker lives here.
// After a request to stop, workers of other nodes may still save, until kill_at_ at most.
bool Supervision::all_workers_ended() {
  if (lost_ || options_.nodes == 1) return true;
  if (!watch_) return !coordinator_ || coordinator_->other_workers_ended();
  watch_->tell_ended();
  return watch_->is_over();
}

void Supervision::end_side_tasks() {
  side_tasks_end_ = true;
  restart_at_.clear();
  if (coordinator_) coordinator_->finish_tasks();
  const auto now = Clock::now();
  ask_side_tasks_to_end();
  if (!anyone_lives()) return;
  save_no_later_than(now + options_.stop_grace);
  kill_no_later_than(now + options_.stop_grace);
}

void Supervision::ask_side_tasks_to_end() {
  for (Worker& task : workers_) {
    if (task.ended || task.signal_sent != 0 || still_starts(task)) continue;
    task.signal_sent = SIGTERM;
    task.process.signal_group(SIGTERM);
  }
}

bool Supervision::still_starts(const Worker& task) const {
  if (!task.side_task || !coordinator_ || lost_) return false;
  return options_.roles.role_of(*task.side_task).always_joins &&
         !coordinator_->task_has_joined(*task.side_task, task.process.pid());
}

}  // namespace trireme::launch
