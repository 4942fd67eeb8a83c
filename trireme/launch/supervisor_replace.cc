#include <fmt/format.h>
#include <trireme/base/error.h>
#include <trireme/base/units.h>
#include <trireme/launch/supervision.h>
#include <algorithm>
#include <csignal>

namespace trireme::launch {
namespace {

// The time after which a replacement that could not be started is tried again.
constexpr Milliseconds kStartAgain{2000};
// A worker whose connection closed has this time to end by itself, with its own exit code.
constexpr Milliseconds kOwnEnd{2000};
// The heartbeats of a stopped member should be missed first: their notice says more about it.
constexpr Milliseconds kHeartbeatsFirst{1000};

}  // namespace

// Called when another coordinator has the job's name in etcd. From then on this launcher has no
// coordinator, like those of other nodes.
void Supervision::step_back() {
  if (!coordinator_ || !coordinator_->was_superseded()) return;
  tell_events();  // The other coordinator does not have them.
  say("another coordinator has taken over; this launcher continues with its workers, and draws "
      "the progress no more");
  job_file_.reset();
  coordinator_.reset();
  for (Worker& worker : workers_) worker.end_at.reset();
}

// Ends the lost workers that still live, silent or stopped: they must not come back. A worker that
// is about to end gets time, because its exit code tells the reason.
void Supervision::end_the_lost() {
  if (!coordinator_) return;  // Another launcher decides; this one replaces workers that end.
  for (const membership::LostProcess& lost : coordinator_->take_lost())
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
    if (worker.ended || !(options_.elastic || worker.side_task)) continue;
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
  const std::string name = worker.side_task ? options_.roles.task_of(*worker.side_task).name()
                                            : fmt::format("worker process {}", worker.number);
  say(fmt::format("{} (pid {}): {}; it is killed", name, worker.process.pid(), reason));
  worker.signal_sent = SIGKILL;
  worker.process.signal_group(SIGKILL);
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
    const bool gone = worker.ended && !worker.counts && !worker.side_task;
    if (gone) board_.remove(worker.identity);
    return gone;
  });
  for (int place = 0; count_workers() < wanted_here(); ++place) {
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
  } else if (!coordinator_ && workers_live()) {
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

int Supervision::count_workers() const {
  return static_cast<int>(
      std::ranges::count_if(workers_, [](const Worker& worker) { return !worker.side_task; }));
}

}  // namespace trireme::launch
