#include <trireme/launch/supervisor.h>

#include <fmt/format.h>
#include <poll.h>
#include <trireme/base/environment.h>
#include <trireme/base/error.h>
#include <trireme/base/log.h>
#include <trireme/base/stack_dump.h>
#include <trireme/base/standard_error.h>
#include <trireme/base/units.h>
#include <trireme/launch/coordinator.h>
#include <trireme/launch/descendants.h>
#include <trireme/launch/lookup.h>
#include <trireme/launch/phase_board.h>
#include <trireme/launch/process.h>
#include <trireme/launch/relay.h>
#include <trireme/launch/signals.h>
#include <trireme/launch/supervisor_options.h>
#include <trireme/launch/token_file.h>
#include <trireme/launch/verdict.h>
#include <trireme/launch/worker_environment.h>
#include <unistd.h>
#include <algorithm>
#include <array>
#include <csignal>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <thread>

namespace trireme::launch {
namespace {

using Clock = Deadline::Clock;

constexpr Milliseconds kLookAtCoordinator{100};
constexpr Milliseconds kLookAtElastic{20};
constexpr int kEarlyDeaths = 3;  // So many replacements in a row that die before they are members:
                                 // something is wrong with them.
constexpr Milliseconds kSecondSignalAfter{500};  // Process managers may send the first one twice.
constexpr Milliseconds kTerminateToKill{1000};   // After a loss.
constexpr Milliseconds kOwnEnd{
    2000};  // A worker whose connection closed ends by itself, with its own exit code, or is ended.
constexpr Milliseconds kHeartbeatsFirst{
    1000};  // A stopped member is found by its silence, which says more of it.
constexpr Milliseconds kReapTimeout{2000};
constexpr Milliseconds kWithdrawTimeout{2000};
constexpr Milliseconds kQuietTimeout{
    1000};  // For a stream that something outside the job holds open.
constexpr Milliseconds kUnreadTimeout{
    2000};  // For a reader of ours that has stopped reading, after a failure.

std::vector<std::string> environment_of_this_process() {
  std::vector<std::string> entries;
  for (char** entry = environ; *entry; ++entry) entries.emplace_back(*entry);
  return entries;
}

// So that no two launchers of a job, nor one that is started again, give the same numbers.
int64_t first_process() {
  std::random_device random;
  return static_cast<int64_t>((uint64_t{random()} << 32 | random()) >> 2);
}

std::string name_of_host() {
  std::array<char, 256> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "unknown";
}

void say(const std::string& text) { write_to_standard_error(fmt::format("trireme: {}\n", text)); }

struct Worker {
  int number;  // In the whole job; of an elastic one: its place, which a replacement takes over.
  int64_t identity;  // Of an elastic job: this incarnation.
  ChildProcess process;
  int signal_sent = 0;
  bool ended = false;
  std::optional<Clock::time_point> end_at;  // Of an elastic job: it is lost, and then killed.
  std::string lost_by = {};
  std::optional<Clock::time_point> stopped_since = {};  // Of an elastic job.
  bool counts = true;  // For the job's end; no longer once it is replaced.
};

class Job {
 public:
  explicit Job(const SupervisorOptions& options);
  int run();

 private:
  void start_coordinator();
  void start_workers();
  void start_worker(int local_worker);
  void wait(Milliseconds at_most);
  void take_signals();
  void take_ends();
  WorkerEnd end_of(const Worker& worker, const ProcessEnd& end) const;
  void report_failures(size_t first_new);
  bool failed_for_good() const { return coordinator_ && coordinator_->failure(); }
  int wanted_here() const;
  bool goes_on_without(const Worker& worker, const WorkerEnd& end);
  bool finds_no_coordinator(const Worker& worker, const WorkerEnd& end) const;
  void step_back();
  void end_the_lost();
  void end_the_stopped();
  void end(Worker& worker, const std::string& reason);
  void tell_notices();
  void tell_lost(const Worker& worker, const WorkerEnd& end) const;
  void tell(Json record, const std::string& text) const;
  void replace();
  PhaseAt last_phase(const Worker& worker) const;
  void note_loss();
  void kill_no_later_than(Clock::time_point at);
  void keep_deadlines();
  void signal_all(int signal);
  Milliseconds until_next_deadline() const;
  void finish_output();
  Verdict finish();
  Json record_of_end(const Verdict& verdict) const;

  const SupervisorOptions& options_;
  const Clock::time_point started_ = Clock::now();
  SignalWatch signals_;  // Before any thread and any child.
  Descendants descendants_;
  std::string token_;
  PhaseBoard board_;                          // Before the coordinator, which looks at it.
  std::unique_ptr<Coordinator> coordinator_;  // On node 0, until another one takes over.
  OutputRelay relay_;
  std::optional<TokenFile> job_file_;  // Of an elastic job: for `trireme scale`.
  std::list<Worker> workers_;
  int64_t next_process_;  // Of an elastic job; no two launchers give the same number.
  std::map<int, int>
      early_deaths_;        // Of an elastic job, by place: in a row, before they were members.
  bool finishing_ = false;  // Of an elastic job: some worker's work is done.

  JobEnd end_;
  std::optional<Clock::time_point> stop_asked_;
  bool lost_ = false;
  std::optional<Clock::time_point> terminate_at_;
  std::optional<Clock::time_point> kill_at_;
};

Job::Job(const SupervisorOptions& options)
    : options_(options),
      token_(token_of_job(options, Environment::of_process())),
      relay_(options.prefix_output, options.on_line, STDOUT_FILENO, STDERR_FILENO),
      next_process_(options.elastic ? first_process() : 0) {
  if (options.node == 0)
    start_coordinator();
  else if (options.etcd)
    address_towards(*options.etcd);  // So that a wrong one is found before anything starts.
}

void Job::start_coordinator() {
  const MembershipOptions membership{.workers = options_.workers,
                                     .join_timeout = options_.join_timeout,
                                     .heartbeat_timeout = options_.heartbeat_timeout,
                                     .stall_timeout = options_.stall_timeout,
                                     .straggler = options_.straggler};
  std::optional<RosterOptions> roster;
  if (options_.elastic)
    roster = RosterOptions{.minimum = options_.elastic->minimum,
                           .maximum = options_.elastic->maximum,
                           .target = options_.workers,
                           .first_timeout = options_.join_timeout,
                           .regroup_timeout = options_.join_timeout,
                           .refill_timeout = options_.join_timeout,
                           .nodes = options_.nodes,
                           .by_claim = options_.etcd.has_value()};
  net::Endpoint listen = options_.rendezvous;
  if (options_.etcd && listen.host.empty()) listen.host = address_towards(*options_.etcd);
  coordinator_ =
      std::make_unique<Coordinator>(listen, token_, membership, roster,
                                    [this](int64_t process) { return board_.look_at(process); });
  if (options_.etcd) coordinator_->publish(*options_.etcd);
  if (options_.elastic)
    job_file_.emplace(TokenFile::create(token_folder(Environment::of_process()),
                                        elastic_job_id(::getpid()),
                                        {token_, coordinator_->endpoint()}));
}

int Job::run() {
  try {
    start_workers();
  } catch (const Error& error) {  // Those already started are killed with this object.
    say(error.what());
    if (coordinator_) coordinator_->withdraw(Deadline::after(kWithdrawTimeout));
    return exit_code_of(error);
  }
  while (std::ranges::any_of(workers_, [](const Worker& worker) { return !worker.ended; })) {
    wait(until_next_deadline());
    take_signals();
    relay_.run_once();
    step_back();
    take_ends();
    // Losses that no child's end shows: a worker of another host, or one that is silent.
    if (options_.elastic) {
      end_the_lost();
      end_the_stopped();
      replace();
    } else if (coordinator_ && !lost_ && coordinator_->first_lost()) {
      note_loss();
    }
    tell_notices();
    keep_deadlines();
  }
  tell_notices();  // What came with the end.
  const Verdict verdict = finish();
  if (!verdict.text.empty()) tell(record_of_end(verdict), verdict.text);
  return verdict.exit_code;
}

void Job::start_workers() {
  const LocalWorkers local = local_workers_of(options_.workers, options_.nodes, options_.node);
  for (int i = 0; i < local.count; ++i) start_worker(i);
}

void Job::start_worker(int local_worker) {
  const LocalWorkers local = local_workers_of(options_.workers, options_.nodes, options_.node);
  std::shared_ptr<PhasePage> page = PhasePage::for_child();
  const net::Endpoint rendezvous = coordinator_ ? coordinator_->endpoint() : options_.rendezvous;
  const JobFacts facts{
      .rendezvous = options_.etcd ? options_.etcd->describe() : rendezvous.describe(),
      .token = token_,
      .cores = std::max(1, static_cast<int>(std::thread::hardware_concurrency())),
      .process = next_process_,
      .page = page->handle(),
      .launcher = ::getpid()};
  Worker worker{
      local.first + local_worker, next_process_,
      ChildProcess(options_.command,
                   worker_environment(options_, facts, local_worker, environment_of_this_process()),
                   page->descriptor(), /*outlives_us=*/options_.elastic.has_value())};
  board_.add(next_process_++, std::move(page));
  relay_.add_worker(worker.number, worker.process.release_output(),
                    worker.process.release_error_output());
  workers_.push_back(std::move(worker));
}

// Until a signal (a child's end is one), output, room for output, or the time is over.
void Job::wait(Milliseconds at_most) {
  std::vector<pollfd> polled{{signals_.descriptor(), POLLIN, 0}};
  relay_.add_to_poll(polled);
  ::poll(polled.data(), polled.size(), static_cast<int>(at_most.count()));
}

void Job::take_signals() {
  for (const int signal : signals_.take()) {
    if (signal == SIGCHLD) continue;
    const auto now = Clock::now();
    if (!stop_asked_) {
      stop_asked_ = now;
      end_.stop_signal = signal;
      signal_all(SIGTERM);
      kill_no_later_than(now + options_.stop_grace);
      if (options_.elastic && coordinator_)
        coordinator_->finish();  // Those who wait for a generation save in the next one, however
                                 // few they are.
    } else if (now - *stop_asked_ >= kSecondSignalAfter) {
      kill_no_later_than(now);
    }
  }
}

void Job::take_ends() {
  const size_t first_new = end_.workers.size();
  std::vector<pid_t> running;
  for (Worker& worker : workers_) {
    if (worker.ended) continue;
    if (const std::optional<ProcessEnd> end = worker.process.poll_end()) {
      worker.ended = true;
      const WorkerEnd how = end_of(worker, *end);
      worker.counts = !goes_on_without(worker, how);
      if (worker.counts) end_.workers.push_back(how);
    } else {
      running.push_back(worker.process.pid());
    }
  }
  descendants_.reap_ended(running);
  report_failures(first_new);
}

WorkerEnd Job::end_of(const Worker& worker, const ProcessEnd& end) const {
  return {.worker = worker.number,
          .pid = worker.process.pid(),
          .host = name_of_host(),
          .end = end,
          .at = std::chrono::duration_cast<Milliseconds>(Clock::now() - started_),
          .signal_sent = worker.signal_sent,
          .last = last_phase(worker),
          .said_goodbye =
              coordinator_ && !options_.elastic && coordinator_->said_goodbye(worker.number)};
}

PhaseAt Job::last_phase(const Worker& worker) const {
  if (const auto seen = board_.look_at(worker.identity)) return seen->at;
  if (!coordinator_) return {};
  if (!options_.elastic) return coordinator_->last_phase(worker.number);
  return coordinator_->last_phase_of_process(worker.identity).value_or(PhaseAt{});
}

// In an elastic job a worker that was killed or lost is no reason to end; one that failed for good
// is, as it would fail again.
bool Job::goes_on_without(const Worker& worker, const WorkerEnd& end) {
  if (!options_.elastic) return false;
  if (coordinator_ && coordinator_->was_dismissed(worker.identity)) return true;
  const bool finished = !end.end.by_signal && end.end.code == kExitOk;
  finishing_ = finishing_ || finished;
  if (finished || stop_asked_ || lost_ || failed_for_good()) return false;
  if (!end.end.by_signal && end.end.code != kExitRetry) return false;
  // Where the coordinator is with another launcher: by what it did itself.
  const bool was_member = coordinator_
                              ? coordinator_->last_phase_of_process(worker.identity).has_value()
                              : end.last.step >= 0;
  int& early = early_deaths_[worker.number];
  early = was_member ? 0 : early + 1;
  if (early >= (finds_no_coordinator(worker, end) ? 1 : kEarlyDeaths)) {
    // The coordinator may be gone, and another one unknown to newcomers: those who are members go
    // on.
    finishing_ = finishing_ || !coordinator_;
    const bool others_live =
        std::ranges::any_of(workers_, [](const Worker& other) { return !other.ended; });
    return !coordinator_ && others_live;
  }
  if (coordinator_) coordinator_->report_lost_process(worker.identity, end.end.describe());
  tell_lost(worker, end);
  return true;
}

// A replacement asks for the coordinator for comm.timeout, and then gives up. The next one would
// find none either, where the coordinator is on another host and no worker of this one is a member.
bool Job::finds_no_coordinator(const Worker& worker, const WorkerEnd& end) const {
  if (coordinator_ || options_.etcd || end.end.by_signal) return false;
  return std::ranges::none_of(workers_, [&](const Worker& other) {
    if (other.ended || other.identity == worker.identity) return false;
    const auto seen = board_.look_at(other.identity);
    return seen && seen->at.step >= 0;
  });
}

void Job::tell_lost(const Worker& worker, const WorkerEnd& end) const {
  const auto now = board_.look_at(worker.identity).value_or(PhaseNow{end.last, Clock::now(), {}});
  const LostMember unknown{worker.number, ""};
  const LostMember lost =
      coordinator_ ? coordinator_->lost_member(worker.identity).value_or(unknown) : unknown;
  Json record =
      record_of("lost", {lost.worker, lost.worker, end.pid, end.host, now}, {}, Clock::now());
  record.erase("waiting");
  record["reason"] = end.end.describe();
  record["circumstances"] = lost.circumstances;
  tell(std::move(record),
       fmt::format("worker process {} (pid {}) was lost{}: {}; {}the job goes on", worker.number,
                   end.pid,
                   end.last.phase == Phase::starting ? std::string() : " in " + end.last.describe(),
                   end.end.describe(),
                   lost.circumstances.empty() ? std::string() : lost.circumstances + "; "));
}

// Another coordinator has the job's name in etcd: this launcher is one of several from now on.
void Job::step_back() {
  if (!coordinator_ || !coordinator_->was_superseded()) return;
  say("another coordinator has taken over; this launcher goes on with its workers");
  job_file_.reset();
  coordinator_.reset();
  for (Worker& worker : workers_) worker.end_at.reset();
}

// Those that the others go on without but that still live, silent or stopped: they must not come
// back. Who is about to end says why it does by its exit code, and is given the time.
void Job::end_the_lost() {
  if (!coordinator_) return;  // Another launcher's business; this one replaces those that end.
  for (const LostProcess& lost : coordinator_->take_lost())
    for (Worker& worker : workers_) {
      if (worker.identity != lost.process || worker.ended) continue;
      worker.end_at = Clock::now() + (lost.ending ? kOwnEnd : Milliseconds(0));
      worker.lost_by = lost.text;
    }
  for (Worker& worker : workers_) {
    if (worker.ended || !worker.end_at || Clock::now() < *worker.end_at) continue;
    worker.end_at.reset();
    if (coordinator_->takes_part(worker.identity))
      continue;  // It was lost wrongly, and came again.
    end(worker, worker.lost_by);
  }
}

// Also before they are members, while they wait, and where another launcher has the coordinator: it
// replaces only those that end.
void Job::end_the_stopped() {
  const auto now = Clock::now();
  for (Worker& worker : workers_) {
    if (worker.ended) continue;
    if (!worker.process.is_stopped())
      worker.stopped_since.reset();
    else if (!worker.stopped_since)
      worker.stopped_since = now;
    else if (worker.signal_sent != SIGKILL &&
             now - *worker.stopped_since >= options_.heartbeat_timeout + kHeartbeatsFirst)
      end(worker, fmt::format("stopped by a signal for {}",
                              format_duration(std::chrono::duration_cast<Milliseconds>(
                                  now - *worker.stopped_since))));
  }
}

void Job::end(Worker& worker, const std::string& reason) {
  say(fmt::format("worker process {} (pid {}): {}; it is ended", worker.number,
                  worker.process.pid(), reason));
  worker.signal_sent = SIGKILL;
  worker.process.signal_group(SIGKILL);
}

// The guilty one's stack follows on its standard error, if it handles the signal
// (base/stack_dump.h).
void Job::tell_notices() {
  if (!coordinator_ || lost_ || stop_asked_) return;
  for (Notice& notice : coordinator_->take_notices()) {
    tell(std::move(notice.record), notice.text);
    for (const Worker& worker : workers_)
      if (worker.process.pid() == notice.pid && !worker.ended && dumps_stack_on_signal(notice.pid))
        ::kill(notice.pid, kStackDumpSignal);
  }
}

void Job::tell(Json record, const std::string& text) const {
  say(text);
  record["text"] = text;
  if (options_.on_notice) options_.on_notice(record);
}

// As many workers as are wanted, in the first places that are free.
void Job::replace() {
  if (stop_asked_ || lost_ || finishing_ || failed_for_good()) return;
  std::erase_if(workers_, [this](const Worker& worker) {
    const bool gone = worker.ended && !worker.counts;
    if (gone) board_.remove(worker.identity);
    return gone;
  });
  const int first = local_workers_of(options_.workers, options_.nodes, options_.node).first;
  for (int place = 0; static_cast<int>(workers_.size()) < wanted_here(); ++place)
    if (std::ranges::none_of(workers_,
                             [&](const Worker& worker) { return worker.number == first + place; }))
      start_worker(place);
}

// The other nodes keep their numbers; node 0 has what more or fewer are wanted.
int Job::wanted_here() const {
  const int here = local_workers_of(options_.workers, options_.nodes, options_.node).count;
  return coordinator_ ? coordinator_->target() - (options_.workers - here) : here;
}

void Job::report_failures(size_t first_new) {
  const auto failed = std::find_if(
      end_.workers.begin() + static_cast<std::ptrdiff_t>(first_new), end_.workers.end(),
      [&](const WorkerEnd& end) { return is_failure(end, stop_asked_.has_value()); });
  if (failed == end_.workers.end() || lost_) return;
  if (coordinator_ &&
      !options_.elastic) {  // In an elastic job the others are asked to end, and need not know why.
    end_.lost = coordinator_->first_lost();  // What it saw itself, before it is told.
    const std::optional<size_t> likely_cause = first_own_failure(end_);
    const WorkerEnd& cause = likely_cause ? end_.workers[*likely_cause] : *failed;
    coordinator_->report_lost(cause.worker, cause.end.describe());
  }
  note_loss();
}

void Job::note_loss() {
  lost_ = true;
  terminate_at_ = Clock::now() + options_.loss_grace;
}

void Job::kill_no_later_than(Clock::time_point at) {
  kill_at_ = kill_at_ ? std::min(*kill_at_, at) : at;
}

void Job::keep_deadlines() {
  const auto now = Clock::now();
  if (terminate_at_ && now >= *terminate_at_) {
    terminate_at_.reset();
    if (!stop_asked_) signal_all(SIGTERM);  // Else they have it already.
    kill_no_later_than(now + kTerminateToKill);
  }
  if (kill_at_ && now >= *kill_at_) {
    kill_at_.reset();
    signal_all(SIGKILL);
  }
}

void Job::signal_all(int signal) {
  for (Worker& worker : workers_) {
    if (worker.ended) continue;
    worker.signal_sent = signal;
    worker.process.signal_group(signal);
  }
}

Milliseconds Job::until_next_deadline() const {
  Milliseconds wait = coordinator_ && !lost_ ? kLookAtCoordinator : Milliseconds(60000);
  if (options_.elastic) wait = kLookAtElastic;
  for (const auto& at : {terminate_at_, kill_at_}) {
    if (at)
      wait = std::min(wait, std::chrono::ceil<Milliseconds>(
                                std::max(Clock::duration::zero(), *at - Clock::now())));
  }
  return wait;
}

// The workers and all they started have ended: hands on what they printed last.
void Job::finish_output() {
  const Deadline unread =
      Deadline::after(stop_asked_ || lost_ ? kUnreadTimeout : options_.stop_grace);
  Deadline quiet = Deadline::after(kQuietTimeout);
  bool asked_again = false;
  while (!asked_again) {
    relay_.run_once();
    if (relay_.has_unwritten()) quiet = Deadline::after(kQuietTimeout);
    if (relay_.has_unwritten() ? unread.expired() : !relay_.has_open_stream() || quiet.expired())
      break;
    wait(relay_.has_unwritten() ? unread.remaining() : quiet.remaining());
    asked_again =
        std::ranges::any_of(signals_.take(), [](int signal) { return signal != SIGCHLD; });
  }
  if (relay_.has_unwritten())
    log_warning("nobody reads the workers' output: the last of it is dropped");
}

// With the place of the worker that it ended for.
Json Job::record_of_end(const Verdict& verdict) const {
  Json record = {{"kind", "end"}, {"exit_code", verdict.exit_code}};
  if (const auto cause = first_own_failure(end_)) {
    const WorkerEnd& end = end_.workers[*cause];
    record.update({{"worker", end.worker},
                   {"pid", end.pid},
                   {"host", end.host},
                   {"phase", std::string(to_string(end.last.phase))},
                   {"step", end.last.step},
                   {"collective", end.last.collective.number},
                   {"reason", end.end.describe()}});
  }
  return record;
}

Verdict Job::finish() {
  if (!descendants_.end_all(Deadline::after(kReapTimeout)))
    log_warning("a process that a worker left behind does not end");
  finish_output();
  // Workers of other nodes may not have said goodbye yet.
  if (coordinator_ && options_.nodes > 1)
    coordinator_->wait_until_all_left(Deadline::after(options_.loss_grace));
  if (coordinator_) {
    end_.any_step_finished = coordinator_->any_step_finished();
    if (options_.elastic) end_.failure = coordinator_->failure();
    if (!end_.lost && !options_.elastic) end_.lost = coordinator_->first_lost();
    coordinator_->withdraw(Deadline::after(kWithdrawTimeout));
  }
  return judge(end_);
}

}  // namespace

int supervise(const SupervisorOptions& options) {
  check_supervisor_options(options);
  return Job(options).run();
}

}  // namespace trireme::launch
