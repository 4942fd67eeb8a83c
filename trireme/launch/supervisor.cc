#include <trireme/launch/supervision.h>

#include <fmt/format.h>
#include <poll.h>
#include <trireme/base/environment.h>
#include <trireme/base/error.h>
#include <trireme/base/log.h>
#include <trireme/launch/supervisor_options.h>
#include <unistd.h>
#include <algorithm>
#include <csignal>
#include <random>

namespace trireme::launch {
namespace {

constexpr Milliseconds kLookAtCoordinator{100};
constexpr Milliseconds kLookAtElastic{20};
// A second signal counts only after this time: process managers may send the first one twice.
constexpr Milliseconds kSecondSignalAfter{500};
constexpr Milliseconds kTerminateToKill{1000};  // The time to end after a worker was lost.
constexpr Milliseconds kReapTimeout{2000};
constexpr Milliseconds kWithdrawTimeout{2000};
// The wait for a stream that a process outside the job holds open.
constexpr Milliseconds kQuietTimeout{1000};
// The wait for a reader of this process's output that has stopped reading, after a failure.
constexpr Milliseconds kUnreadTimeout{2000};
constexpr Milliseconds kSlowReaderTimeout{30000};  // The same wait at the end of other jobs.
constexpr Milliseconds kOtherNodesTimeout{5000};   // The wait for other nodes' workers to leave.
constexpr Milliseconds kLastEventsTimeout{1000};
constexpr Milliseconds kLookAtSideTasks{50};

// A random first number: no two launchers of a job give the same numbers, nor does one that is
// started again.
int64_t first_process() {
  std::random_device random;
  return static_cast<int64_t>((uint64_t{random()} << 32 | random()) >> 2);
}

}  // namespace

Supervision::Supervision(const SupervisorOptions& options)
    : options_(options),
      token_(token_of_job(options, Environment::of_process())),
      relay_(options.prefix_output, options.on_line, STDOUT_FILENO, STDERR_FILENO),
      next_process_(options.elastic ? first_process() : 0) {
  if (options.node == 0)
    start_coordinator();
  else if (options.etcd)
    address_of_this_host();  // Finds a wrong address of etcd before anything starts.
}

// Whether the job was asked to stop since the last look at the signals.
bool Supervision::stop_came() {
  return std::ranges::any_of(signals_.take(), [](int signal) { return signal != SIGCHLD; });
}

int Supervision::run() {
  try {
    start_workers();
    start_side_tasks();
  } catch (const Error& error) {  // The destructor kills the workers that have been started.
    say(error.what());
    if (coordinator_) coordinator_->withdraw(Deadline::after(kWithdrawTimeout));
    return exit_code_of(error);
  }
  while (anyone_lives() || start_again_at_ || !restart_at_.empty()) {
    wait(until_next_deadline());
    take_signals();
    relay_.run_once();
    step_back();
    take_ends();
    // Some lost workers are not ended children: those of another host, and silent ones.
    if (options_.elastic) {
      end_the_lost();
      end_the_stopped();
      replace();
    } else if (coordinator_ && !lost_ && coordinator_->first_lost()) {
      note_lost_worker();
    }
    watch_side_tasks();
    tell_notices();
    tell_events();
    keep_deadlines();
  }
  tell_notices();  // Notices may have come with the end.
  const Verdict verdict = finish();
  if (!verdict.text.empty()) tell(record_of_end(verdict), verdict.text);
  return verdict.exit_code;
}

// Waits for a signal (a child's end is one), output, room for output, or the end of the time.
void Supervision::wait(Milliseconds at_most) {
  std::vector<pollfd> polled{{signals_.descriptor(), POLLIN, 0}};
  relay_.add_to_poll(polled);
  ::poll(polled.data(), polled.size(), static_cast<int>(at_most.count()));
}

void Supervision::take_signals() {
  for (const int signal : signals_.take()) {
    if (signal == SIGCHLD) continue;
    const auto now = Clock::now();
    if (!stop_asked_) {
      stop_asked_ = now;
      end_.stop_signal = signal;
      signal_all(SIGTERM);
      save_no_later_than(now + options_.stop_grace);
      kill_no_later_than(now + options_.stop_grace);
      // Processes that wait for a generation will save in the next one, however few they are.
      if (options_.elastic && coordinator_) coordinator_->finish();
    } else if (now - *stop_asked_ >= kSecondSignalAfter) {
      save_no_later_than(now);
      kill_no_later_than(now);
    }
  }
}

bool Supervision::anyone_lives() const {
  return std::ranges::any_of(workers_, [](const Worker& worker) { return !worker.ended; });
}

bool Supervision::workers_live() const {
  return std::ranges::any_of(
      workers_, [](const Worker& worker) { return !worker.ended && !worker.side_task; });
}

void Supervision::note_lost_worker() {
  const auto now = Clock::now();
  lost_ = true;
  save_no_later_than(now + options_.stop_grace);
  if (!options_.elastic) {
    terminate_at_ = now + options_.loss_grace;
    return;
  }
  // The others would continue: they are asked to save, however few they are, and to end.
  if (coordinator_) coordinator_->finish();
  if (!stop_asked_) signal_all(SIGTERM);
  kill_no_later_than(now + options_.stop_grace);
}

void Supervision::kill_no_later_than(Clock::time_point at) {
  kill_at_ = kill_at_ ? std::min(*kill_at_, at) : at;
}

void Supervision::save_no_later_than(Clock::time_point at) {
  save_until_ = save_until_ ? std::min(*save_until_, at) : at;
}

bool Supervision::may_save_on(const Worker& worker) const {
  const auto seen = board_.look_at(worker.identity);
  return seen && seen->saving && Clock::now() < save_until_.value_or(Clock::time_point::min());
}

void Supervision::keep_deadlines() {
  const auto now = Clock::now();
  if (terminate_at_ && now >= *terminate_at_) {
    terminate_at_.reset();
    // If the job was asked to stop, the workers have got SIGTERM already.
    if (!stop_asked_) signal_all(SIGTERM, /*but_savers=*/true);
    kill_no_later_than(now + kTerminateToKill);
  }
  if (kill_at_ && now >= *kill_at_) {
    kill_at_.reset();
    // A worker that has written its checkpoint has a moment to end by itself.
    if (signal_all(SIGKILL, /*but_savers=*/true) > 0)
      kill_no_later_than(std::min(now + kTerminateToKill, *save_until_));
  }
}

// Sends the signal to each worker, but not twice: a second SIGTERM would end a save. Returns the
// number of workers that were spared because they may finish their checkpoints.
int Supervision::signal_all(int signal, bool but_savers) {
  int spared = 0;
  for (Worker& worker : workers_) {
    if (worker.ended || worker.signal_sent == signal) continue;
    // Side tasks serve until all workers of the job have saved; then end_side_tasks() asks them.
    if (worker.side_task && signal == SIGTERM) continue;
    if (but_savers && may_save_on(worker)) {
      ++spared;
      continue;
    }
    worker.signal_sent = signal;
    worker.process.signal_group(signal);
  }
  return spared;
}

Milliseconds Supervision::until_next_deadline() const {
  Milliseconds wait = coordinator_ && !lost_ ? kLookAtCoordinator : Milliseconds(60000);
  if (options_.elastic) wait = kLookAtElastic;
  if (!options_.roles.empty()) wait = std::min(wait, kLookAtSideTasks);
  for (const auto& at : {terminate_at_, kill_at_}) {
    if (at)
      wait = std::min(wait, std::chrono::ceil<Milliseconds>(
                                std::max(Clock::duration::zero(), *at - Clock::now())));
  }
  return wait;
}

// Prints the last output of the workers, which have ended with all processes that they started.
void Supervision::finish_output() {
  const Deadline unread =
      Deadline::after(stop_asked_ || lost_ ? kUnreadTimeout : kSlowReaderTimeout);
  Deadline quiet = Deadline::after(kQuietTimeout);
  bool asked_again = false;
  while (!asked_again) {
    relay_.run_once();
    if (relay_.has_unwritten()) quiet = Deadline::after(kQuietTimeout);
    if (relay_.has_unwritten() ? unread.expired() : !relay_.has_open_stream() || quiet.expired())
      break;
    wait(relay_.has_unwritten() ? unread.remaining() : quiet.remaining());
    asked_again = stop_came();
  }
  if (relay_.has_unwritten())
    log_warning("no process reads the workers' output: the last of it is dropped");
}

Verdict Supervision::finish() {
  if (!descendants_.end_all(Deadline::after(kReapTimeout)))
    log_warning("a process that a worker left behind does not end");
  finish_output();
  if (coordinator_) {
    // Workers of other nodes may not have said goodbye yet. Those of this host have ended, but the
    // coordinator may not have read their last events.
    coordinator_->wait_until_all_left(
        Deadline::after(options_.nodes > 1 ? kOtherNodesTimeout : kLastEventsTimeout));
    tell_events();
    end_.any_step_finished = coordinator_->any_step_finished();
    if (options_.elastic) end_.members_were_stopped = coordinator_->members_were_stopped();
    if (options_.elastic && !end_.failure) end_.failure = coordinator_->failure();
    if (!end_.lost && !options_.elastic) end_.lost = coordinator_->first_lost();
    coordinator_->withdraw(Deadline::after(kWithdrawTimeout));
  }
  end_.runs_own_programme = options_.is_own_programme;
  return judge(end_);
}

int supervise(const SupervisorOptions& options) {
  check_supervisor_options(options);
  try {
    return Supervision(options).run();
  } catch (const Error& error) {
    if (error.code() != ErrorCode::aborted) throw;
    Supervision::say(error.what());
    return kExitStopped;
  }
}

}  // namespace trireme::launch
