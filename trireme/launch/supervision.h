// The inside of the supervisor (supervisor.h).
#pragma once
#include <trireme/base/deadline.h>
#include <trireme/launch/descendants.h>
#include <trireme/launch/end_watch.h>
#include <trireme/launch/process.h>
#include <trireme/launch/relay.h>
#include <trireme/launch/restarts.h>
#include <trireme/launch/signals.h>
#include <trireme/launch/supervisor.h>
#include <trireme/launch/supervisor_options.h>
#include <trireme/launch/verdict.h>
#include <trireme/launch/worker_environment.h>
#include <trireme/membership/coordinator.h>
#include <trireme/membership/token_file.h>
#include <trireme/watch/job_mark.h>
#include <trireme/watch/phase_board.h>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>

namespace trireme::launch {

// After this many replacements in a row that died before they were members, or could not be
// started, no more are started.
constexpr int kEarlyDeaths = 3;

// A process that this launcher has started: a worker, or a side task.
struct Worker {
  // The worker's number in the whole job. In an elastic job it is the number of its place, which a
  // replacement takes over. A side task's is kFirstSideTask + its number.
  int number;
  int64_t identity;  // The process's number in an elastic job (membership/roster.h).
  ChildProcess process;
  int signal_sent = 0;
  bool ended = false;
  std::optional<Deadline::Clock::time_point> end_at;  // A lost process is killed then.
  std::string lost_by = {};
  std::optional<Deadline::Clock::time_point> stopped_since = {};  // Only elastic jobs note it.
  std::optional<int> side_task = {};  // The number of its side task, if it has one.
  Deadline::Clock::time_point started = Deadline::Clock::now();
  bool counts = true;  // Whether its end counts for the job's end; false once it is replaced.
};

// The supervision of one job by one launcher. Its parts are supervisor.cc (the loop: signals,
// deadlines, the end), supervisor_start.cc (the coordinator and the first processes),
// supervisor_ends.cc (the meaning of a process's end), supervisor_replace.cc (replacements of
// workers), supervisor_tasks.cc (side tasks) and supervisor_report.cc (lines for people).
class Supervision {
 public:
  using Clock = Deadline::Clock;
  explicit Supervision(const SupervisorOptions& options);
  int run();
  static void say(const std::string& text);

 private:
  // supervisor.cc
  bool stop_came();
  void wait(Milliseconds at_most);
  void take_signals();
  bool anyone_lives() const;
  bool workers_live() const;
  void note_lost_worker();
  void kill_no_later_than(Clock::time_point at);
  void save_no_later_than(Clock::time_point at);
  bool may_save_on(const Worker& worker) const;
  void keep_deadlines();
  int signal_all(int signal, bool but_savers = false);
  Milliseconds until_next_deadline() const;
  void finish_output();
  Verdict finish();

  // supervisor_start.cc
  void start_coordinator();
  std::string address_of_this_host();
  void start_workers();
  void start_worker(int local_worker);
  JobFacts facts_for(const watch::PhasePage& page) const;

  // supervisor_ends.cc
  void take_ends();
  WorkerEnd end_of(const Worker& worker, const ProcessEnd& end) const;
  std::optional<int64_t> step_being_saved(const Worker& worker) const;
  PhaseAt last_phase(const Worker& worker) const;
  bool continues_without(const Worker& worker, const WorkerEnd& end);
  bool continues_without_newcomer(const Worker& worker, const WorkerEnd& end);
  bool has_been_member(const Worker& worker) const;
  bool members_live() const;
  bool finds_no_coordinator(const WorkerEnd& end) const;
  void report_failures(size_t first_new);
  bool failed_for_good() const { return coordinator_ && coordinator_->failure(); }

  // supervisor_replace.cc
  void step_back();
  void end_the_lost();
  void end_the_stopped();
  void end(Worker& worker, const std::string& reason);
  bool replaces() const;
  void replace();
  bool try_to_start(int local_worker);
  int count_workers() const;
  int wanted_here() const;

  // supervisor_tasks.cc
  void start_side_tasks();
  void start_side_task(int number);
  bool continues_without_task(const Worker& task, const WorkerEnd& end);
  bool restart_later(const Worker& task, const WorkerEnd& end);
  void watch_side_tasks();
  void end_lost_tasks();
  void restart_tasks();
  bool all_workers_ended();
  void end_side_tasks();
  void ask_side_tasks_to_end();
  bool still_starts(const Worker& task) const;

  // supervisor_report.cc
  void tell_notices();
  void tell_events();
  void tell_lost(const Worker& worker, const WorkerEnd& end) const;
  void tell_lost_task(const WorkerEnd& end, const std::string& what_now) const;
  void tell(Json record, const std::string& text) const;
  Json record_of_end(const Verdict& verdict) const;

  const SupervisorOptions& options_;
  const membership::LocalWorkers local_ =
      membership::local_workers_of(options_.workers, options_.nodes, options_.node);
  const Clock::time_point started_ = Clock::now();
  SignalWatch signals_;  // It must exist before any thread and any child.
  Descendants descendants_;
  std::string token_;
  const std::string mark_ = mark_of_job(options_, token_).to_text();
  watch::PhaseBoard board_;  // It must exist before the coordinator, which looks at it.
  std::unique_ptr<membership::Coordinator>
      coordinator_;  // Node 0's, until another coordinator takes over.
  OutputRelay relay_;
  // The file for commands from outside, of a job that is elastic or has side tasks.
  std::optional<membership::TokenFile> job_file_;
  std::list<Worker> workers_;
  int64_t next_process_;  // The next process number; no two launchers give the same one.
  // The processes of each place that, in a row, died before they were members or could not be
  // started.
  std::map<int, int> early_deaths_;
  // A replacement could not be started. The next try is due then.
  std::optional<Clock::time_point> start_again_at_;
  std::set<int> barred_;  // The places in which a newcomer could not take part.
  int resizes_ = 0;       // The number of `trireme scale` that barred_ knows of.
  // A worker of this launcher's elastic job has finished its work, or no process is replaced
  // here any more.
  bool finishing_ = false;

  std::map<int, Restarts> restarts_;             // Of the side tasks, by number.
  std::map<int, Clock::time_point> restart_at_;  // The side tasks to start again, and when.
  bool side_tasks_end_ = false;                  // They were asked to end.
  std::optional<EndWatch> watch_;                // Of a launcher without the coordinator.

  JobEnd end_;
  std::optional<Clock::time_point> stop_asked_;
  bool lost_ = false;
  std::optional<Clock::time_point> terminate_at_;
  std::optional<Clock::time_point> kill_at_;
  std::optional<Clock::time_point> save_until_;  // A worker may write a checkpoint until then.
};

}  // namespace trireme::launch
