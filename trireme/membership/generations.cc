#include <fmt/format.h>
#include <trireme/base/log.h>
#include <trireme/membership/generations.h>
#include <trireme/membership/protocol.h>

#include <algorithm>

namespace trireme::membership {
namespace {

std::vector<Roster::Process> processes_of(const Former& former) {
  std::vector<Roster::Process> processes;
  for (const auto& [process, standby] : former.members) processes.push_back(process);
  return processes;
}

}  // namespace

Generations::Generations(const Former& former, Actions actions, Time now)
    : options_(former.roster),
      roster_(former.roster, former.generation, processes_of(former)),
      actions_(std::move(actions)),
      members_(processes_of(former)),
      unfinished_(former.unfinished),
      history_(former.history) {
  for (const auto& [process, standby] : former.members) {
    last_phases_.try_emplace(process);
    standbys_[process] = standby;
  }
  taken_over_ = cause_ =
      fmt::format("the coordinator at {} was lost", former.coordinator.describe());
  began_ = now;
}

void Generations::arrive(net::ConnectionId connection, const Json& message, Time now) {
  const auto process = message.at("process").get<Roster::Process>();
  if (message.contains("facts") &&
      !accepts(connection, process,
               {fmt::format("the process {} of host {}", message.at("pid").get<int>(),
                            message.at("host").get<std::string>()),
                message["facts"].get<Facts>(), actions_.is_own(process)},
               now))
    return;
  const auto worker = worker_of(process);
  forget_place_of(process);
  waiting_[connection] = process;
  standbys_[process] = net::parse_endpoint(message.at("standby").get<std::string>());
  if (message.contains("former")) learn(message["former"].at("history"));
  if (!began_ && (worker || generation() < 0)) began_ = now;
  actions_.answer(connection, {{"op", "noted"}});
  const Roster::Decisions decisions =
      roster_.arrive(process, message.at("step").get<int64_t>(), now);
  // The other workers may wait for it inside the step that it gave up.
  const std::string reason = message.at("reason").get<std::string>();
  if (worker && !reason.empty()) {
    if (given_up_.empty())
      given_up_ = fmt::format("worker {} gave a step up: {}", *worker, reason);
    actions_.lose(*worker, "it gave the step up: " + reason);
  }
  act(decisions, now);
}

// Turns away a process that differs from the job, and returns false. The first process that comes
// sets the job's terms. Until the first generation has formed, a process of this coordinator's own
// launcher may replace them.
bool Generations::accepts(net::ConnectionId connection, Roster::Process process, Terms terms,
                          Time now) {
  const bool knows_better = terms_ && generation() < 0 && terms.is_own && !terms_->is_own;
  if (!terms_ || knows_better) {
    terms_ = terms;
  } else if (terms_->facts != terms.facts && !worker_of(process)) {
    turn_away(connection, terms);
    return false;
  }
  if (generation() < 0) terms_of_[connection] = std::move(terms);
  if (!knows_better) return true;
  std::vector<net::ConnectionId> others;
  for (const auto& [other, its] : terms_of_)
    if (its.facts != terms_->facts) others.push_back(other);
  for (const net::ConnectionId other : others) {
    turn_away(other, terms_of_.at(other));
    terms_of_.erase(other);
    if (const auto waits = waiting_.extract(other)) act(roster_.lost(waits.mapped(), now), now);
  }
  return true;
}

void Generations::turn_away(net::ConnectionId connection, const Terms& whose) {
  const Failure failure{
      ErrorCode::invalid_argument,
      fmt::format("turned away, as it differs from the job: {}",
                  first_difference("this one", whose.facts, terms_->name, terms_->facts).value()),
      "the programme, the configuration and the data that the job was started with"};
  log_warning("membership: {} was {}", whose.name, failure.what);
  actions_.answer(connection, refusal(failure));
  actions_.close(connection);
}

void Generations::closed(net::ConnectionId connection, Time now) {
  terms_of_.erase(connection);
  if (const auto placed = placed_.extract(connection)) {
    const auto worker = worker_of(placed.mapped());
    if (!worker) return;
    // The other workers wait for it to join.
    actions_.lose(*worker, "connection closed before it joined its generation");
    lost_worker(
        *worker, {},
        {.text = fmt::format(
             "worker {} was lost before it joined its generation: connection closed", *worker),
         .reason = "connection closed before it joined its generation",
         .ending = true},
        now);
    return;
  }
  const auto found = waiting_.find(connection);
  if (found == waiting_.end()) return;
  const Roster::Process process = found->second;
  waiting_.erase(found);
  lost_while_waiting({.process = process,
                      .text = "connection closed while it waited for the next generation",
                      .ending = true},
                     now);
}

void Generations::joined(int worker) { forget_place_of(members_.at(static_cast<size_t>(worker))); }

void Generations::forget_place_of(Roster::Process process) {
  const auto found =
      std::ranges::find(placed_, process, [](const auto& each) { return each.second; });
  if (found == placed_.end()) return;
  actions_.close(found->first);
  placed_.erase(found);
}

void Generations::lost_worker(int worker, PhaseAt last, LostProcess lost, Time now) {
  lost.process = members_.at(static_cast<size_t>(worker));
  if (!roster_.is_member(lost.process)) return;
  note_lost(worker, last, lost, now);
  act(roster_.lost(lost.process, now), now);
}

void Generations::lost_while_waiting(LostProcess lost, Time now) {
  if (!roster_.is_waiting(lost.process)) return;
  if (const auto worker = last_worker_of(lost.process))
    note_lost(*worker, last_phases_.at(lost.process), lost, now);
  else
    lost_.push_back(lost);
  act(roster_.lost(lost.process, now), now);
}

void Generations::process_ended(Roster::Process process, const std::string& how, Time now) {
  if (first_lost_ && first_lost_->process == process) {
    first_lost_->reason = how;
    first_lost_->ending = false;
  }
  unfinished_.ended(process, how);
  lost_while_waiting({.process = process, .text = how}, now);
}

void Generations::left(int worker, Time now) {
  act(roster_.left(members_.at(static_cast<size_t>(worker)), now), now);
}

std::string Generations::resize(int target, Time now) {
  if (options_.nodes > 1)
    return "this job has several nodes, and each launcher keeps as many workers as it began with";
  if (target < options_.minimum || target > options_.maximum)
    return fmt::format("{} workers were asked for, and the job was started with --elastic {}:{}",
                       target, options_.minimum, options_.maximum);
  if (target % options_.unit != 0)
    return fmt::format("{} workers were asked for, and workers come and go in units of {}", target,
                       options_.unit);
  ++resizes_;
  act(roster_.resize(target, now), now);
  return {};
}

void Generations::finish(Time now) { act(roster_.finish(now), now); }
void Generations::tick(Time now) { act(roster_.tick(now), now); }

void Generations::stepped(int64_t step, const Json& facts, Time now) {
  if (history_.empty() || !history_.back()["seconds_to_first_step"].is_null()) return;
  history_.back()["first_step"] = step;
  history_.back()["seconds_to_first_step"] =
      std::chrono::duration<double>(now - began_.value_or(now)).count();
  history_.back().update(facts);
  began_.reset();
}

bool Generations::is_waiting(int worker) const {
  return roster_.is_waiting(members_.at(static_cast<size_t>(worker)));
}

std::optional<int> Generations::worker_of(Roster::Process process) const {
  return roster_.is_member(process) ? last_worker_of(process) : std::nullopt;
}

void Generations::note_cause(const std::string& cause, Time now) {
  if (cause_.empty()) {
    cause_ = cause;
    began_ = now;
  }
}

void Generations::note_lost(int worker, PhaseAt last, const LostProcess& lost, Time now) {
  last_phases_[lost.process] = last;
  lost_members_[lost.process] = {worker, lost.circumstances};
  if (lost_ranks_.empty()) {  // The first lost worker is the cause, whatever else was on its way.
    first_lost_ = lost;
    first_lost_at_ = last;
    cause_ = taken_over_.empty() ? lost.text : taken_over_ + "; " + lost.text;
    if (taken_over_.empty()) began_ = now;
  }
  lost_ranks_.push_back(worker);
  if (phase_.empty() && last.phase != Phase::starting) phase_ = last.describe();
  lost_.push_back(lost);
}

// Called before a generation forms. Its newest state has `committed` steps (-1: no state).
void Generations::note_progress(int64_t committed) {
  unfinished_.committed(committed);
  if (!first_lost_) return;
  const LostProcess lost = *std::exchange(first_lost_, {});
  const int64_t step = committed >= 0 ? committed + 1 : std::max<int64_t>(first_lost_at_.step, 1);
  unfinished_.lost(step, lost.process,
                   fmt::format("worker {} in {}", lost_members_.at(lost.process).worker,
                               first_lost_at_.brief()),
                   lost.reason.empty() ? lost.text : lost.reason, !lost.ending);
  const std::string verdict = unfinished_.verdict();
  if (!verdict.empty()) fail(verdict, ErrorCode::internal);
}

void Generations::fail(const std::string& what, ErrorCode code) {
  roster_.fail(what);
  if (!failure_)
    failure_ = {code, "no next generation: " + what,
                code == ErrorCode::internal
                    ? "fix what ends the workers there; the same run would "
                      "lose them again"
                    : "run the job again; it continues from its last checkpoint"};
  for (const auto& [connection, process] : std::exchange(waiting_, {})) {
    actions_.answer(connection, failed(*failure_));
    actions_.close(connection);
  }
}

// Takes rank 0's facts of the first step from `history`: a lost coordinator may not have passed
// them on.
void Generations::learn(const Json& history) {
  for (size_t i = 0; i < std::min(history.size(), history_.size()); ++i)
    if (history_[i]["seconds_to_first_step"].is_null() &&
        history_[i]["generation"] == history[i].at("generation"))
      history_[i] = history[i];
}

Former Generations::as_known() const {
  Former former = actions_.rules();
  former.generation = generation();
  former.roster = options_;
  former.roster.target = target();
  former.history = history_;
  former.unfinished = unfinished_;
  for (const Roster::Process process : members_)
    former.members.push_back({process, standbys_.at(process)});
  return former;
}

std::vector<net::ConnectionId> Generations::all_waiting() const {
  std::vector<net::ConnectionId> connections;
  for (const auto& [connection, process] : waiting_) connections.push_back(connection);
  return connections;
}

std::vector<Former::Place> Generations::missing() const {
  std::vector<Former::Place> missing;
  for (const Roster::Process process : members_)
    if (roster_.is_member(process)) missing.push_back({process, standbys_.at(process)});
  return missing;
}

std::optional<int> Generations::last_worker_of(Roster::Process process) const {
  const auto found = std::ranges::find(members_, process);
  if (found == members_.end()) return std::nullopt;
  return static_cast<int>(found - members_.begin());
}

// Answers a process that waits.
void Generations::answer(Roster::Process process, const Json& message) {
  const auto found =
      std::ranges::find(waiting_, process, [](const auto& each) { return each.second; });
  if (found == waiting_.end()) return;
  const net::ConnectionId connection = found->first;
  waiting_.erase(found);
  actions_.answer(connection, message);
  // Until the process joins on another connection, this one tells if it ends.
  if (message["op"] == "formed")
    placed_[connection] = process;
  else
    actions_.close(connection);
}

void Generations::act(const Roster::Decisions& decisions, Time now) {
  if (!decisions.interrupt.empty()) {
    const bool shrinks = static_cast<int>(decisions.interrupt.size()) > roster_.target();
    note_cause(shrinks ? "asked for fewer workers" : "a worker joined", now);
    actions_.interrupt();
  }
  for (const Roster::Process process : decisions.dismissed) {
    dismissed_.insert(process);
    answer(process, {{"op", "dismissed"}});
  }
  for (const Roster::Process process : decisions.missed)
    note_lost(last_worker_of(process).value(), last_phases_.at(process),
              {.process = process, .text = "it did not come to the regrouping"}, now);
  if (!decisions.failure.empty()) fail(decisions.failure, ErrorCode::peer_lost);
  for (const auto& formed : decisions.formed) begin(formed, now);
}

// Begins a generation, unless the job has failed.
void Generations::begin(const Roster::Decisions::Generation& formed, Time now) {
  note_progress(formed.step);
  if (failure_) return;
  if (cause_.empty()) cause_ = given_up_.empty() ? "a worker joined" : given_up_;
  members_ = formed.members;
  for (const Roster::Process process : members_) last_phases_.try_emplace(process);
  history_.push_back({{"generation", formed.number},
                      {"world_size", members_.size()},
                      {"first_step", formed.step < 0 ? 1 : formed.step + 1},
                      {"cause", cause_},
                      {"lost_ranks", std::exchange(lost_ranks_, Json::array())},
                      {"phase", std::exchange(phase_, {})},
                      {"seconds_to_first_step", nullptr},
                      {"batch", nullptr},
                      {"micro_batches", nullptr},
                      {"learning_rate_factor", nullptr}});
  cause_.clear();
  taken_over_.clear();
  given_up_.clear();
  if (!began_) began_ = now;
  terms_of_.clear();
  for (const auto& [connection, process] : std::exchange(placed_, {})) actions_.close(connection);
  actions_.start(formed.number, static_cast<int>(members_.size()));
  const Json known = as_known().to_json();
  for (size_t worker = 0; worker < members_.size(); ++worker) {
    Json place = {{"op", "formed"},      {"number", formed.number},
                  {"worker", worker},    {"workers", members_.size()},
                  {"step", formed.step}, {"cause", history_.back()["cause"]},
                  {"former", known}};
    if (options_.unit > 1) place["steps"] = formed.steps;
    answer(members_[worker], place);
  }
}

}  // namespace trireme::membership
