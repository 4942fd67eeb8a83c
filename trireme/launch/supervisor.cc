#include <trireme/base/host_name.h>
#include <trireme/launch/supervisor.h>

#include <fmt/format.h>
#include <poll.h>
#include <trireme/base/cores.h>
#include <trireme/base/environment.h>
#include <trireme/base/error.h>
#include <trireme/base/log.h>
#include <trireme/base/stack_dump.h>
#include <trireme/base/standard_error.h>
#include <trireme/base/units.h>
#include <trireme/launch/coordinator.h>
#include <trireme/launch/descendants.h>
#include <trireme/launch/job_mark.h>
#include <trireme/launch/lookup.h>
#include <trireme/launch/phase_board.h>
#include <trireme/launch/process.h>
#include <trireme/launch/protocol.h>
#include <trireme/launch/relay.h>
#include <trireme/launch/signals.h>
#include <trireme/launch/supervisor_options.h>
#include <trireme/launch/token_file.h>
#include <trireme/launch/verdict.h>
#include <trireme/launch/worker_environment.h>
#include <unistd.h>
#include <algorithm>
#include <csignal>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <set>

namespace trireme::launch {
namespace {

using Clock = Deadline::Clock;

constexpr Milliseconds kLookAtCoordinator{100};
constexpr Milliseconds kLookAtElastic{20};
// After this many replacements in a row that died before they were members, or could not be
// started, no more are started.
constexpr int kEarlyDeaths = 3;
// The time after which a replacement that could not be started is tried again.
constexpr Milliseconds kStartAgain{2000};
// A second signal counts only after this time: process managers may send the first one twice.
constexpr Milliseconds kSecondSignalAfter{500};
constexpr Milliseconds kTerminateToKill{1000};  // The time to end after a worker was lost.
// A worker whose connection closed has this time to end by itself, with its own exit code.
constexpr Milliseconds kOwnEnd{2000};
// The heartbeats of a stopped member should be missed first: their notice says more about it.
constexpr Milliseconds kHeartbeatsFirst{1000};
constexpr Milliseconds kReapTimeout{2000};
constexpr Milliseconds kWithdrawTimeout{2000};
// The wait for a stream that a process outside the job holds open.
constexpr Milliseconds kQuietTimeout{1000};
// The wait for a reader of this process's output that has stopped reading, after a failure.
constexpr Milliseconds kUnreadTimeout{2000};
constexpr Milliseconds kSlowReaderTimeout{30000};  // The same wait at the end of other jobs.
constexpr Milliseconds kOtherNodesTimeout{5000};   // The wait for other nodes' workers to leave.

std::vector<std::string> environment_of_this_process() {
  std::vector<std::string> entries;
  for (char** entry = environ; *entry; ++entry) entries.emplace_back(*entry);
  return entries;
}

// A random first number: no two launchers of a job give the same numbers, nor does one that is
// started again.
int64_t first_process() {
  std::random_device random;
  return static_cast<int64_t>((uint64_t{random()} << 32 | random()) >> 2);
}

void say(const std::string& text) { write_to_standard_error(fmt::format("trireme: {}\n", text)); }

struct Worker {
  // The worker's number in the whole job. In an elastic job it is the number of its place, which a
  // replacement takes over.
  int number;
  int64_t identity;  // The process's number in an elastic job (roster.h).
  ChildProcess process;
  int signal_sent = 0;
  bool ended = false;
  std::optional<Clock::time_point> end_at;  // A lost worker of an elastic job is killed then.
  std::string lost_by = {};
  std::optional<Clock::time_point> stopped_since = {};  // Only elastic jobs note it.
  bool counts = true;  // Whether its end counts for the job's end; false once it is replaced.
};

class Supervision {
 public:
  explicit Supervision(const SupervisorOptions& options);
  int run();

 private:
  void start_coordinator();
  std::string address_of_this_host();
  bool stop_came();
  void start_workers();
  void start_worker(int local_worker);
  void wait(Milliseconds at_most);
  void take_signals();
  void take_ends();
  bool anyone_lives() const;
  WorkerEnd end_of(const Worker& worker, const ProcessEnd& end) const;
  void report_failures(size_t first_new);
  bool failed_for_good() const { return coordinator_ && coordinator_->failure(); }
  int wanted_here() const;
  bool continues_without(const Worker& worker, const WorkerEnd& end);
  bool continues_without_newcomer(const Worker& worker, const WorkerEnd& end);
  bool has_been_member(const Worker& worker) const;
  bool members_live() const;
  bool finds_no_coordinator(const WorkerEnd& end) const;
  void step_back();
  void end_the_lost();
  void end_the_stopped();
  void end(Worker& worker, const std::string& reason);
  void tell_notices();
  void tell_lost(const Worker& worker, const WorkerEnd& end) const;
  void tell(Json record, const std::string& text) const;
  bool replaces() const;
  void replace();
  bool try_to_start(int local_worker);
  PhaseAt last_phase(const Worker& worker) const;
  std::optional<int64_t> step_being_saved(const Worker& worker) const;
  void note_lost_worker();
  void kill_no_later_than(Clock::time_point at);
  void save_no_later_than(Clock::time_point at);
  bool may_save_on(const Worker& worker) const;
  void keep_deadlines();
  int signal_all(int signal, bool but_savers = false);
  Milliseconds until_next_deadline() const;
  void finish_output();
  Verdict finish();
  Json record_of_end(const Verdict& verdict) const;

  const SupervisorOptions& options_;
  const LocalWorkers local_ = local_workers_of(options_.workers, options_.nodes, options_.node);
  const Clock::time_point started_ = Clock::now();
  SignalWatch signals_;  // It must exist before any thread and any child.
  Descendants descendants_;
  std::string token_;
  const std::string mark_ = mark_of_job(options_, token_).to_text();
  PhaseBoard board_;  // It must exist before the coordinator, which looks at it.
  std::unique_ptr<Coordinator> coordinator_;  // Node 0's, until another coordinator takes over.
  OutputRelay relay_;
  std::optional<TokenFile> job_file_;  // An elastic job's file for `trireme scale`.
  std::list<Worker> workers_;
  int64_t next_process_;  // The next process number; no two launchers give the same one.
  // The processes of each place that, in a row, died before they were members or could not be
  // started.
  std::map<int, int> early_deaths_;
  // A replacement could not be started. The next try is due then.
  std::optional<Clock::time_point> start_again_at_;
  std::set<int> barred_;  // The places in which a newcomer could not take part.
  int resizes_ = 0;       // The number of `trireme scale` that barred_ knows of.
  // A worker of this launcher's elastic job has finished its work, or no process is replaced here
  // any more.
  bool finishing_ = false;

  JobEnd end_;
  std::optional<Clock::time_point> stop_asked_;
  bool lost_ = false;
  std::optional<Clock::time_point> terminate_at_;
  std::optional<Clock::time_point> kill_at_;
  std::optional<Clock::time_point> save_until_;  // A worker may write a checkpoint until then.
};

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

void Supervision::start_coordinator() {
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
                           .by_claim = options_.etcd.has_value(),
                           .unit = options_.elastic->unit};
  net::Endpoint listen = options_.rendezvous;
  if (options_.etcd && listen.host.empty()) listen.host = address_of_this_host();
  coordinator_ =
      std::make_unique<Coordinator>(listen, token_, membership, roster,
                                    [this](int64_t process) { return board_.look_at(process); });
  if (options_.etcd)
    coordinator_->publish(*options_.etcd, options_.join_timeout, [this] { return stop_came(); });
  if (options_.elastic)
    job_file_.emplace(TokenFile::create(token_folder(Environment::of_process()),
                                        elastic_job_id(::getpid()),
                                        {token_, coordinator_->endpoint()}));
}

// Asks etcd again for some time: it may be starting, or be silent for a moment.
std::string Supervision::address_of_this_host() {
  return address_towards(*options_.etcd, options_.join_timeout, [this] { return stop_came(); });
}

// Whether the job was asked to stop since the last look at the signals.
bool Supervision::stop_came() {
  return std::ranges::any_of(signals_.take(), [](int signal) { return signal != SIGCHLD; });
}

int Supervision::run() {
  try {
    start_workers();
  } catch (const Error& error) {  // The destructor kills the workers that have been started.
    say(error.what());
    if (coordinator_) coordinator_->withdraw(Deadline::after(kWithdrawTimeout));
    return exit_code_of(error);
  }
  while (anyone_lives() || start_again_at_) {
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
    tell_notices();
    keep_deadlines();
  }
  tell_notices();  // Notices may have come with the end.
  const Verdict verdict = finish();
  if (!verdict.text.empty()) tell(record_of_end(verdict), verdict.text);
  return verdict.exit_code;
}

void Supervision::start_workers() {
  for (int i = 0; i < local_.count; ++i) start_worker(i);
}

void Supervision::start_worker(int local_worker) {
  std::shared_ptr<PhasePage> page = PhasePage::for_child();
  const net::Endpoint rendezvous = coordinator_ ? coordinator_->endpoint() : options_.rendezvous;
  const JobFacts facts{
      .rendezvous = options_.etcd ? options_.etcd->describe() : rendezvous.describe(),
      .token = token_,
      .cores = usable_cores(),
      .process = next_process_,
      .page = page->handle(),
      .launcher = ::getpid(),
      .job = mark_};
  Worker worker{local_.first + local_worker, next_process_,
                ChildProcess(options_.command,
                             worker_environment(options_, facts, local_worker,
                                                environment_of_this_process()),
                             page->descriptor(), /*outlives_us=*/options_.elastic.has_value())};
  board_.add(next_process_++, std::move(page));
  relay_.add_worker(worker.number, worker.process.release_output(),
                    worker.process.release_error_output());
  workers_.push_back(std::move(worker));
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

bool Supervision::anyone_lives() const {
  return std::ranges::any_of(workers_, [](const Worker& worker) { return !worker.ended; });
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
          .said_goodbye =
              coordinator_ && !options_.elastic && coordinator_->said_goodbye(worker.number)};
}

std::optional<int64_t> Supervision::step_being_saved(const Worker& worker) const {
  const auto seen = board_.look_at(worker.identity);
  return seen ? seen->saving : std::nullopt;
}

PhaseAt Supervision::last_phase(const Worker& worker) const {
  if (const auto seen = board_.look_at(worker.identity)) return seen->at;
  if (!coordinator_) return {};
  if (!options_.elastic) return coordinator_->last_phase(worker.number);
  return coordinator_->last_phase_of_process(worker.identity).value_or(PhaseAt{});
}

// An elastic job continues when a worker was killed or lost. It ends when a worker failed for
// good: a replacement would fail too.
bool Supervision::continues_without(const Worker& worker, const WorkerEnd& end) {
  if (!options_.elastic) return false;
  if (coordinator_ && coordinator_->was_dismissed(worker.identity)) return true;
  const bool finished = !end.end.by_signal && end.end.code == kExitOk;
  finishing_ = finishing_ || finished;
  if (finished || stop_asked_ || lost_ || failed_for_good()) return false;
  const bool was_member = has_been_member(worker);
  if (!end.end.by_signal && end.end.code != kExitRetry)
    return !was_member && continues_without_newcomer(worker, end);
  int& early = early_deaths_[worker.number];
  early = was_member ? 0 : early + 1;
  if (early >= (finds_no_coordinator(end) ? 1 : kEarlyDeaths)) {
    // The coordinator may be gone, and newcomers may not know the next one: the members continue.
    finishing_ = finishing_ || !coordinator_;
    return !coordinator_ && anyone_lives();
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
  return std::ranges::any_of(
      workers_, [this](const Worker& worker) { return !worker.ended && has_been_member(worker); });
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

void Supervision::tell_lost(const Worker& worker, const WorkerEnd& end) const {
  const auto now = board_.look_at(worker.identity).value_or(PhaseNow{end.last, Clock::now(), {}});
  const LostMember unknown{worker.number, ""};
  const LostMember lost =
      coordinator_ ? coordinator_->lost_member(worker.identity).value_or(unknown) : unknown;
  Json record =
      record_of("lost", {lost.worker, lost.worker, end.pid, end.host, now}, {}, Clock::now());
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

// Called when another coordinator has the job's name in etcd. From then on this launcher has no
// coordinator, like those of other nodes.
void Supervision::step_back() {
  if (!coordinator_ || !coordinator_->was_superseded()) return;
  say("another coordinator has taken over; this launcher continues with its workers");
  job_file_.reset();
  coordinator_.reset();
  for (Worker& worker : workers_) worker.end_at.reset();
}

// Ends the lost workers that still live, silent or stopped: they must not come back. A worker that
// is about to end gets time, because its exit code tells the reason.
void Supervision::end_the_lost() {
  if (!coordinator_) return;  // Another launcher decides; this one replaces workers that end.
  for (const LostProcess& lost : coordinator_->take_lost())
    for (Worker& worker : workers_) {
      if (worker.identity != lost.process || worker.ended) continue;
      worker.end_at = Clock::now() + (lost.ending ? kOwnEnd : Milliseconds(0));
      worker.lost_by = lost.text;
    }
  for (Worker& worker : workers_) {
    if (worker.ended || !worker.end_at || Clock::now() < *worker.end_at) continue;
    worker.end_at.reset();
    // A worker that takes part was taken for lost wrongly, and has come back.
    if (coordinator_->takes_part(worker.identity)) continue;
    end(worker, worker.lost_by);
  }
}

// Ends workers that were stopped for too long. This includes workers that are not members or that
// wait, and those of a launcher without the coordinator: it replaces only workers that end.
void Supervision::end_the_stopped() {
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

void Supervision::end(Worker& worker, const std::string& reason) {
  say(fmt::format("worker process {} (pid {}): {}; it is killed", worker.number,
                  worker.process.pid(), reason));
  worker.signal_sent = SIGKILL;
  worker.process.signal_group(SIGKILL);
}

// Prints the notices, and asks the named worker to print its stack on its standard error, if it
// handles the signal (base/stack_dump.h).
void Supervision::tell_notices() {
  if (!coordinator_ || lost_ || stop_asked_) return;
  for (Notice& notice : coordinator_->take_notices()) {
    tell(std::move(notice.record), notice.text);
    for (const Worker& worker : workers_)
      if (worker.process.pid() == notice.pid && !worker.ended && dumps_stack_on_signal(notice.pid))
        ::tgkill(notice.pid, notice.pid, kStackDumpSignal);  // The main thread dumps its stack.
  }
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

// Whether another process takes the place of one that ends.
bool Supervision::replaces() const {
  const bool ends_elsewhere = coordinator_ && coordinator_->is_finishing();
  return !stop_asked_ && !lost_ && !finishing_ && !ends_elsewhere && !failed_for_good();
}

// Starts as many workers as are wanted, in the first free places.
void Supervision::replace() {
  const bool waits = start_again_at_ && Clock::now() < *start_again_at_;
  if (replaces() && waits) return;
  start_again_at_.reset();
  if (!replaces()) return;
  if (coordinator_ && coordinator_->resizes() != resizes_) {  // `trireme scale` is a new try.
    resizes_ = coordinator_->resizes();
    barred_.clear();
  }
  std::erase_if(workers_, [this](const Worker& worker) {
    const bool gone = worker.ended && !worker.counts;
    if (gone) board_.remove(worker.identity);
    return gone;
  });
  for (int place = 0; static_cast<int>(workers_.size()) < wanted_here(); ++place) {
    const int number = local_.first + place;
    if (!barred_.contains(number) && !std::ranges::count(workers_, number, &Worker::number) &&
        !try_to_start(place))
      return;
  }
}

// Returns false if no process can be started. That counts like one that died early: it is tried
// again, and then the members save and end.
bool Supervision::try_to_start(int local_worker) {
  const int number = local_.first + local_worker;
  try {
    start_worker(local_worker);
    return true;
  } catch (const Error& error) {
    say(fmt::format("worker process {} cannot be replaced now: {}", number, error.what()));
  }
  if (++early_deaths_[number] < kEarlyDeaths) {
    start_again_at_ = Clock::now() + kStartAgain;
  } else if (!coordinator_ && anyone_lives()) {
    finishing_ = true;  // Another launcher has the coordinator, and the members continue.
  } else {
    end_.failure = {ErrorCode::peer_lost,
                    fmt::format("worker process {} could not be replaced, {} times in a row",
                                number, kEarlyDeaths),
                    "run the job again; it continues from its last checkpoint"};
    note_lost_worker();
  }
  return false;
}

// The number of workers wanted on this node. Only node 0's number changes: the other nodes keep
// theirs.
int Supervision::wanted_here() const {
  const int elsewhere = options_.workers - local_.count;
  const int wanted = coordinator_ ? coordinator_->target() - elsewhere : local_.count;
  return wanted - static_cast<int>(barred_.size());
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
    coordinator_->report_lost(cause.worker, cause.end.describe());
  }
  note_lost_worker();
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

// The record of the job's end. It tells where the worker was that caused the end.
Json Supervision::record_of_end(const Verdict& verdict) const {
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

Verdict Supervision::finish() {
  if (!descendants_.end_all(Deadline::after(kReapTimeout)))
    log_warning("a process that a worker left behind does not end");
  finish_output();
  // Workers of other nodes may not have said goodbye yet.
  if (coordinator_ && options_.nodes > 1)
    coordinator_->wait_until_all_left(Deadline::after(kOtherNodesTimeout));
  if (coordinator_) {
    end_.any_step_finished = coordinator_->any_step_finished();
    if (options_.elastic) end_.members_were_stopped = coordinator_->members_were_stopped();
    if (options_.elastic && !end_.failure) end_.failure = coordinator_->failure();
    if (!end_.lost && !options_.elastic) end_.lost = coordinator_->first_lost();
    coordinator_->withdraw(Deadline::after(kWithdrawTimeout));
  }
  return judge(end_);
}

}  // namespace

int supervise(const SupervisorOptions& options) {
  check_supervisor_options(options);
  try {
    return Supervision(options).run();
  } catch (const Error& error) {
    if (error.code() != ErrorCode::aborted) throw;
    say(error.what());
    return kExitStopped;
  }
}

}  // namespace trireme::launch
