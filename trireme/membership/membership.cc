#include <fmt/format.h>
#include <trireme/base/error.h>
#include <trireme/base/units.h>
#include <trireme/membership/meetings.h>
#include <trireme/membership/membership.h>
#include <trireme/membership/protocol.h>
#include <algorithm>
#include <cstdlib>

namespace trireme::membership {
namespace {

using std::chrono::duration_cast;
using std::chrono::milliseconds;

constexpr std::chrono::seconds kSilenceOfAWorker{2};

void append(Membership::Messages& messages, Membership::Messages more) {
  messages.insert(messages.end(), std::make_move_iterator(more.begin()),
                  std::make_move_iterator(more.end()));
}

}  // namespace

std::string LostWorker::describe() const {
  if (worker < 0) return reason;
  std::string where;
  if (!host.empty()) where = fmt::format(" (host {}, pid {})", host, pid);
  const std::string more = circumstances.empty() ? "" : "; " + circumstances;
  return fmt::format("{}{} was lost in {}: {}{}",
                     task ? task->name() : fmt::format("worker {}", worker), where, last.brief(),
                     reason, more);
}

Membership::Membership(MembershipOptions options)
    : options_(options),
      workers_(static_cast<size_t>(options.workers)),
      meetings_(std::make_unique<Meetings>(options.workers,
                                           [this](int worker) { return name_of(worker); })),
      stalls_(options.stall_timeout),
      stragglers_(options.straggler, options.workers) {}
Membership::~Membership() = default;

Membership::Messages Membership::join(const JoinRequest& request, Time now) {
  if (!first_join_) first_join_ = now;
  if (const auto refused = check_join(request)) {
    last_refusal_ = refused->what;
    return {{Outgoing::kSender, refusal(*refused)}};
  }
  if (auto difference = differs_from_others(request)) {
    Messages messages = never_start(*difference);
    messages.push_back({Outgoing::kSender, refusal(*difference)});
    return messages;
  }
  entry(request.worker) = {State::joined, request, {{Phase::connecting, -1}, now, {}}, now};
  return all_joined() ? start() : Messages{};
}

std::optional<Failure> Membership::check_join(const JoinRequest& request) const {
  const auto wrong = [](std::string what, std::string remedy) {
    return Failure{ErrorCode::invalid_argument, std::move(what), std::move(remedy)};
  };
  if (auto refused = refuse_generation(request.generation)) return refused;
  const std::string joiner = worker_name(request.worker, request.host);
  if (request.workers != options_.workers)
    return wrong(fmt::format("{} was started for a job of {} workers, but this one has {}", joiner,
                             request.workers, options_.workers),
                 "the same number of workers for all launchers");
  if (request.worker < 0 || request.worker >= options_.workers)
    return wrong(fmt::format("{} is out of range: the job has workers 0 to {}", joiner,
                             options_.workers - 1),
                 "a number of its own, from that range, for each worker");
  if (ended_) return ended_;
  if (const Entry& holder = entry(request.worker); holder.state != State::absent)
    return wrong(
        fmt::format("{} cannot join: its number is taken by host {}, pid {} (this one has pid {})",
                    joiner, holder.request.host, holder.request.pid, request.pid),
        "a number of its own for each worker");
  return std::nullopt;
}

std::optional<Failure> Membership::differs_from_others(const JoinRequest& request) const {
  for (const int other : in_state(State::joined)) {
    const JoinRequest& there = entry(other).request;
    const JoinRequest& low = other < request.worker ? there : request;
    const JoinRequest& high = other < request.worker ? request : there;
    const auto difference = first_difference(worker_name(low.worker, low.host), low.must_agree,
                                             worker_name(high.worker, high.host), high.must_agree);
    if (difference)
      return Failure{ErrorCode::invalid_argument,
                     fmt::format("the workers differ: {}", *difference),
                     "start all workers with the same programme and configuration"};
  }
  return std::nullopt;
}

Membership::Messages Membership::start() {
  started_ = true;
  return to_present({{"op", "joined"}, {"peers", peers()}});
}

Json Membership::peers() const {
  Json peers = Json::array();
  for (const Entry& worker : workers_) {
    const JoinRequest& its = worker.request;
    peers.push_back(
        {{"worker", its.worker}, {"host", its.host}, {"address", its.address}, {"pid", its.pid}});
  }
  return peers;
}

const Facts* Membership::facts_of_workers() const {
  const std::vector<int> there = in_state(State::joined);
  return there.empty() ? nullptr : &entry(there.front()).request.must_agree;
}

Membership::Messages Membership::never_start(Failure failure) {
  ended_ = std::move(failure);
  return to_present(refusal(*ended_));
}

void Membership::heard(int worker, Time now) {
  entry(worker).heard = now;
  latest_ = std::max(latest_, now);
}

void Membership::beat(int worker, const PhaseNow& phase, Time now) {
  heard(worker, now);
  see(worker, phase, now);
}

void Membership::see(int worker, const PhaseNow& phase, Time now) {
  latest_ = std::max(latest_, now);
  entry(worker).last = phase;
  furthest_step_ = std::max(furthest_step_, phase.at.step);
  stragglers_.note(worker, phase.times, phase.at.step);
}

Membership::Messages Membership::goodbye(int worker) {
  if (entry(worker).state != State::joined) return {};
  entry(worker).state = State::left;
  return meetings_->fail_all(
      [&](const std::string& where) { return left_failure(worker, where); });
}

Membership::Messages Membership::lost(int worker, const std::string& reason) {
  Entry& gone = entry(worker);
  if (gone.state == State::left) return {};
  if (gone.state == State::lost) {
    // The end of a process tells more than the broken connection before it. But the end of a
    // silent worker only follows from its silence.
    if (first_lost_ && first_lost_->worker == worker && !lost_by_silence_)
      first_lost_->reason = reason;
    return {};
  }
  gone.state = State::lost;
  const std::string around =
      started_ ? circumstances(gone.last, present_but(worker), latest_) : std::string();
  lost_.push_back({worker, gone.request.host, gone.request.pid, gone.last.at, reason, around});
  return end_by(lost_.back());
}

Membership::Messages Membership::end_by(const LostWorker& lost) {
  // After the generation has ended, this follows from its end, which the others know already.
  if (ended_) return {};

  first_lost_ = lost;
  ended_ = Failure{ErrorCode::peer_lost, first_lost_->describe(),
                   "run the job again; it continues from its last checkpoint"};
  Messages messages = to_present(lost_message(*first_lost_));
  append(messages, meetings_->fail_all([&](const std::string&) { return *ended_; }));
  if (!started_) append(messages, to_present(refusal(*ended_)));
  return messages;
}

Membership::Messages Membership::agree(int worker, int64_t request, const std::string& what,
                                       const Facts& facts, Time now, Time deadline) {
  return meet(fmt::format("the comparison of '{}'", what), worker, request, facts, now, deadline);
}

Membership::Messages Membership::barrier(int worker, int64_t request, const std::string& name,
                                         Time now, Time deadline) {
  return meet(fmt::format("barrier '{}'", name), worker, request, {}, now, deadline);
}

Membership::Messages Membership::meet(const std::string& where, int worker, int64_t request,
                                      Facts facts, Time now, Time deadline) {
  heard(worker, now);
  if (ended_) return {{worker, reply_to(request, *ended_)}};
  if (const auto left = in_state(State::left); !left.empty())
    return {{worker, reply_to(request, left_failure(left.front(), where))}};
  return meetings_->arrive(where, worker, {request, std::move(facts), now, deadline});
}

Membership::Messages Membership::tick(Time now) {
  latest_ = std::max(latest_, now);
  // If this process itself paused (it was stopped, or the machine slept), the workers were not
  // silent.
  const auto pause = now - last_tick_.value_or(now);
  last_tick_ = now;
  const bool was_away = pause > options_.heartbeat_timeout / 2;
  Messages messages = expire_join(now);
  for (const int worker : in_state(State::joined)) {
    Entry& it = entry(worker);
    if (was_away) it.heard += pause;
    const auto silence = duration_cast<milliseconds>(now - it.heard);
    if (silence <= options_.heartbeat_timeout) continue;
    lost_by_silence_ = lost_by_silence_ || !first_lost_;
    append(messages, lost(worker, "silent for " + format_duration(silence)));
    // The worker may wake up: then it must know that the others continue without it.
    if (first_lost_ && first_lost_->worker == worker)
      messages.push_back({worker, lost_message(*first_lost_)});
  }
  append(messages, meetings_->tick(now));
  if (started_ && !ended_ && !was_away) append(messages, look_around(now));
  return messages;
}

Membership::Messages Membership::look_around(Time now) {
  const std::vector<WorkerNow> present = in_place(State::joined);
  // The place of a silent worker is not known. A worker that was last heard before a goodbye may
  // have gone on since, because the operation that it waited for has ended.
  Time last_goodbye{};
  for (const int gone : in_state(State::left))
    last_goodbye = std::max(last_goodbye, entry(gone).heard);
  const bool all_speak = std::ranges::all_of(present, [&](const WorkerNow& one) {
    const Time heard = entry(one.worker).heard;
    return now - heard < kSilenceOfAWorker && heard > last_goodbye;
  });
  if (auto deadlock =
          all_speak ? stalls_.find_deadlock(present, in_place(State::left), now) : std::nullopt)
    return end_by_deadlock(std::move(*deadlock));
  for (Notice& notice : stalls_.judge(present, now)) notices_.push_back(std::move(notice));
  tell(stragglers_.judge(now));
  return {};
}

// It would come again in each further try, so it counts as no lost worker.
Membership::Messages Membership::end_by_deadlock(Notice notice) {
  ended_ = Failure{ErrorCode::invalid_argument, notice.text,
                   "the same calls in the same order on every rank: no `if (world.rank() == 0)` "
                   "around a call that is COLLECTIVE, and as many steps on each rank (join() of "
                   "its optimizer on a rank that has no batches left)"};
  notices_.push_back(std::move(notice));
  Messages messages = to_present(deadlock_message(*ended_));
  append(messages, meetings_->fail_all([&](const std::string&) { return *ended_; }));
  return messages;
}

void Membership::tell(const std::vector<watch::Straggler>& stragglers) {
  for (const watch::Straggler& straggler : stragglers) {
    const WorkerNow whose = now_of(straggler.worker);
    Json record = straggler.to_json(whose.rank);
    record["kind"] = "straggler";
    notices_.push_back(
        {straggler.describe(fmt::format("rank {} (pid {}{})", whose.rank, whose.pid,
                                        whose.host.empty() ? "" : ", host " + whose.host)),
         std::move(record)});
  }
}

WorkerNow Membership::now_of(int worker) const {
  const Entry& it = entry(worker);
  const auto replicas = it.request.must_agree.find("replicas a worker");
  const int each =
      replicas == it.request.must_agree.end() ? 1 : std::atoi(replicas->second.c_str());
  return {worker, worker * each, it.request.pid, it.request.host, it.last};
}

std::vector<WorkerNow> Membership::present_but(int worker) const {
  std::vector<WorkerNow> present = in_place(State::joined);
  std::erase_if(present, [&](const WorkerNow& other) { return other.worker == worker; });
  return present;
}
std::vector<WorkerNow> Membership::in_place(State state) const {
  std::vector<WorkerNow> found;
  for (const int worker : in_state(state)) found.push_back(now_of(worker));
  return found;
}

Json Membership::times() {
  tell(stragglers_.conclude());
  Json phases = Json::array(), found = Json::array();
  for (int worker = 0; worker < options_.workers; ++worker)
    if (const auto mean = stragglers_.mean_of(worker))
      phases.push_back(watch::to_json(*mean, now_of(worker).rank));
  for (const watch::Straggler& straggler : stragglers_.found())
    found.push_back(straggler.to_json(now_of(straggler.worker).rank));
  return {{"phases", phases}, {"stragglers", found}};
}

Membership::Messages Membership::expire_join(Time now) {
  if (started_ || ended_ || !first_join_) return {};
  Time deadline = *first_join_ + options_.join_timeout;
  for (const int worker : in_state(State::joined))
    deadline = std::min(deadline, entry(worker).request.deadline);
  if (now < deadline) return {};

  std::vector<std::string> missing;
  for (const int worker : in_state(State::absent)) missing.push_back(name_of(worker));
  std::string what =
      fmt::format("{} of {} did not join within {}", enumerate(missing), options_.workers,
                  format_duration(duration_cast<milliseconds>(deadline - *first_join_)));
  if (!last_refusal_.empty()) what += fmt::format(" (one was refused: {})", last_refusal_);
  return never_start(
      {ErrorCode::timeout, what,
       "check that they were started and reach the coordinator, or allow more time"});
}

std::optional<Failure> Membership::refuse_generation(int generation) const {
  if (generation == options_.generation) return std::nullopt;
  return Failure{ErrorCode::invalid_argument,
                 fmt::format("a message of generation {} came to a job that is in generation {}",
                             generation, options_.generation),
                 "end the processes of the older generation"};
}

std::optional<Failure> Membership::nobody_to_wait_for(int worker) const {
  if (ended_) return ended_;
  for (int other = 0; other < options_.workers; ++other) {
    if (other != worker && entry(other).state != State::left) return std::nullopt;
  }
  if (options_.workers == 1) return std::nullopt;  // It may wait for another thread of its own.
  return left_failure(worker == 0 ? 1 : 0, "this wait");
}

Failure Membership::left_failure(int worker, const std::string& where) const {
  return {ErrorCode::peer_lost,
          fmt::format("{} left the job; it will not come to {}", name_of(worker), where),
          "let all workers take the same steps before they leave"};
}

PhaseAt Membership::last_phase(int worker) const { return entry(worker).last.at; }
bool Membership::said_goodbye(int worker) const { return entry(worker).state == State::left; }
bool Membership::any_step_finished() const { return furthest_step_ > 1; }
bool Membership::anyone_present() const { return !in_state(State::joined).empty(); }
bool Membership::all_joined() const { return in_state(State::joined).size() == workers_.size(); }

Membership::Messages Membership::to_present(const Json& message) const {
  Messages messages;
  for (const int worker : in_state(State::joined)) messages.push_back({worker, message});
  return messages;
}

std::vector<int> Membership::in_state(State state) const {
  std::vector<int> found;
  for (int worker = 0; worker < options_.workers; ++worker) {
    if (entry(worker).state == state) found.push_back(worker);
  }
  return found;
}

std::string Membership::name_of(int worker) const {
  return worker_name(worker, entry(worker).request.host);
}

const Membership::Entry& Membership::entry(int worker) const {
  if (worker < 0 || worker >= options_.workers)
    throw Error(ErrorCode::invalid_argument, "membership",
                fmt::format("worker {} is out of range: the job has workers 0 to {}", worker,
                            options_.workers - 1));
  return workers_[static_cast<size_t>(worker)];
}
Membership::Entry& Membership::entry(int worker) {
  return const_cast<Entry&>(std::as_const(*this).entry(worker));
}

}  // namespace trireme::membership
