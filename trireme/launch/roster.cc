#include <trireme/launch/roster.h>

#include <fmt/format.h>
#include <algorithm>
#include <tuple>

namespace trireme::launch {

Roster::Roster(const RosterOptions& options) : options_(options) {}

Roster::Decisions Roster::arrive(Process process, int64_t step, Time now) {
  Entry& entry = processes_[process];
  const bool was_working = entry.state == State::working;
  entry.state = State::waiting;
  entry.step = step;
  entry.arrival = arrivals_++;
  if (was_working) ending_ = true;
  return decide(now);
}

Roster::Decisions Roster::lost(Process process, Time now) {
  const auto found = processes_.find(process);
  if (found == processes_.end() || found->second.state == State::gone) return {};
  if (found->second.state == State::working) ending_ = true;
  found->second.state = State::gone;
  return decide(now);
}

Roster::Decisions Roster::left(Process process, Time now) {
  const auto found = processes_.find(process);
  if (found == processes_.end()) return {};
  found->second.state = State::gone;
  finishing_ = true;
  return decide(now);
}

Roster::Decisions Roster::resize(int target, Time now) {
  options_.target = target;
  return decide(now);
}

Roster::Decisions Roster::tick(Time now) { return decide(now); }

bool Roster::is_member(Process process) const {
  const auto found = processes_.find(process);
  return found != processes_.end() && found->second.state == State::working;
}
bool Roster::is_waiting(Process process) const {
  const auto found = processes_.find(process);
  return found != processes_.end() && found->second.state == State::waiting;
}

std::vector<Roster::Process> Roster::in_state(State state) const {
  std::vector<Process> found;
  for (const auto& [process, entry] : processes_)
    if (entry.state == state) found.push_back(process);
  return found;
}

Roster::Decisions Roster::decide(Time now) {
  Decisions decisions;
  if (failed_) return decisions;
  if (finishing_) send_newcomers_home(decisions);
  ask_to_come(decisions, now);
  const bool anyone_waits = !in_state(State::waiting).empty();
  if (!counting_ && ending_ && anyone_waits) {
    since_ = now;
    counting_ = true;
  }
  if (!ending_ || !anyone_waits) return decisions;
  give_up_on_missing(decisions, now);
  if (!in_state(State::working).empty()) return decisions;

  const auto waiting = static_cast<int>(in_state(State::waiting).size());
  const auto waited = now - since_;
  if (waiting < (finishing_ ? 1 : options_.minimum)) {
    if (waited < (generation_ < 0 ? options_.first_timeout : options_.refill_timeout)) return decisions;
    failed_ = true;
    decisions.failure = fmt::format("{} of at least {} processes are there", waiting, options_.minimum);
    return decisions;
  }
  if (generation_ < 0 && waiting < options_.target && waited < options_.first_timeout) return decisions;
  form(decisions);
  return decisions;
}

// Newcomers that are wanted, or more members than are wanted: the generation ends at its next step.
void Roster::ask_to_come(Decisions& decisions, Time now) {
  if (generation_ < 0 || ending_ || interrupted_ || finishing_) return;
  const auto working = static_cast<int>(in_state(State::working).size());
  const bool can_grow = working < options_.target && !in_state(State::waiting).empty();
  if (!can_grow && working <= options_.target) return;
  interrupted_ = true;
  since_ = now;
  decisions.interrupt = in_state(State::working);
}

// They would have nothing to do.
void Roster::send_newcomers_home(Decisions& decisions) {
  for (const Process process : in_state(State::waiting)) {
    if (processes_.at(process).worker >= 0) continue;
    decisions.dismissed.push_back(process);
    processes_.erase(process);
  }
}

void Roster::give_up_on_missing(Decisions& decisions, Time now) {
  if (now - since_ < options_.regroup_timeout) return;
  for (const Process process : in_state(State::working)) {
    processes_[process].state = State::gone;
    decisions.missed.push_back(process);
  }
}

void Roster::form(Decisions& decisions) {
  std::vector<Process> members = in_state(State::waiting);
  std::ranges::sort(members, {}, [this](Process process) {
    const Entry& entry = processes_.at(process);
    return std::tuple(-entry.step, entry.worker < 0, entry.worker, entry.arrival);
  });
  while (static_cast<int>(members.size()) > std::max(options_.target, options_.minimum)) {
    const Process surplus = members.back();
    members.pop_back();
    if (processes_.at(surplus).worker < 0) continue;  // A newcomer goes on waiting, as a spare.
    processes_.erase(surplus);
    decisions.dismissed.push_back(surplus);
  }
  ++generation_;
  std::erase_if(processes_, [](const auto& each) { return each.second.state == State::gone; });
  for (size_t i = 0; i < members.size(); ++i) {
    Entry& entry = processes_.at(members[i]);
    entry.state = State::working;
    entry.worker = static_cast<int>(i);
  }
  const int64_t step = processes_.at(members.front()).step;
  decisions.formed.push_back({generation_, std::move(members), step});
  ending_ = interrupted_ = counting_ = false;
}

}  // namespace trireme::launch
