#include <trireme/membership/roster.h>

#include <fmt/format.h>
#include <trireme/membership/units.h>
#include <algorithm>
#include <map>
#include <tuple>

namespace trireme::membership {
namespace {

// Whether `condition` has held for `timeout`. Call it at each event.
bool has_lasted(std::optional<Roster::Time>& since, bool condition,
                std::chrono::milliseconds timeout, Roster::Time now) {
  if (!condition)
    since.reset();
  else if (!since)
    since = now;
  return since && now - *since >= timeout;
}

}  // namespace

Roster::Roster(const RosterOptions& options) : options_(options) {
  options_.target = std::clamp(options_.target, options_.minimum, options_.maximum);
  check_units(options_.unit, options_.shape, options_.minimum, options_.maximum, options_.target);
}

Roster::Roster(const RosterOptions& options, int generation, const std::vector<Process>& members)
    : Roster(options) {
  for (size_t i = 0; i < members.size(); ++i)
    processes_[members[i]] = {.state = State::working,
                              .worker = static_cast<int>(i),
                              .position = static_cast<int>(i) % options_.unit};
  generation_ = generation;
  taken_over_ = true;
}

Roster::Decisions Roster::arrive(Process process, int64_t step, Time now) {
  Entry& entry = processes_[process];
  const bool was_working = entry.state == State::working;
  entry.state = State::waiting;
  entry.is_done = false;
  entry.step = step;
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
  found->second.is_done = true;
  finishing_ = true;
  return decide(now);
}

Roster::Decisions Roster::finish(Time now) {
  finishing_ = true;
  return decide(now);
}

Roster::Decisions Roster::resize(int target, Time now) {
  options_.target =
      std::clamp(target, options_.minimum, options_.maximum) / options_.unit * options_.unit;
  return decide(now);
}

Roster::Decisions Roster::claimed(Time until, Time now) {
  claimed_until_ = until;
  return decide(now);
}

Roster::Decisions Roster::fail(const std::string& why) {
  if (failure_.empty()) failure_ = why;
  Decisions decisions;
  decisions.failure = failure_;
  return decisions;
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

// Only the order of waiting processes by step counts. Times count by their age, up
// to the longest time-out.
std::string Roster::state_key(Time now) const {
  const std::vector<Process> waiting = in_state(State::waiting);
  const auto count_waiting = [&](auto before) {
    return std::ranges::count_if(waiting,
                                 [&](Process each) { return before(processes_.at(each)); });
  };
  const auto longest =
      std::max({options_.first_timeout, options_.regroup_timeout, options_.refill_timeout});
  const auto age = [&](const std::optional<Time>& since) {
    return since
               ? std::min<int64_t>((now - *since) / std::chrono::milliseconds(1), longest.count())
               : -1;
  };
  const auto claimed =
      claimed_until_ > now ? (claimed_until_ - now) / std::chrono::milliseconds(1) : 0;
  // Tests ask for millions of keys, so the numbers stand there as they are in memory.
  std::string key;
  const auto add = [&key](auto number) {
    key.append(reinterpret_cast<const char*>(&number), sizeof number);
  };
  for (const bool fact :
       {generation_ < 0, ending_, interrupted_, finishing_, failure_.empty(), taken_over_})
    add(fact);
  for (const int64_t number :
       {int64_t{options_.target}, age(missing_since_), age(short_since_), int64_t{claimed}})
    add(static_cast<int32_t>(number));
  for (const auto& [process, entry] : processes_) {
    add(static_cast<int8_t>(process));
    add(static_cast<int8_t>(entry.state));
    add(static_cast<int8_t>(entry.worker));
    if (options_.unit > 1) add(entry.is_done);
    if (entry.state != State::waiting) continue;
    add(entry.step < 0);
    add(static_cast<int8_t>(
        count_waiting([&](const Entry& other) { return other.step < entry.step; })));
    if (options_.unit > 1) add(static_cast<int8_t>(entry.position));
  }
  return key;
}

std::vector<Roster::Process> Roster::in_state(State state) const {
  std::vector<Process> found;
  for (const auto& [process, entry] : processes_)
    if (entry.state == state) found.push_back(process);
  return found;
}

Roster::Decisions Roster::decide(Time now) {
  Decisions decisions;
  decisions.failure = failure_;
  if (!failure_.empty()) return decisions;
  if (finishing_) send_newcomers_home(decisions);
  ask_to_come(decisions);
  give_up_on_missing(decisions, now);
  if (failure_.empty()) form_or_fail(decisions, now);
  return decisions;
}

// Ends the generation at its next step if newcomers are wanted, or it has too many members.
void Roster::ask_to_come(Decisions& decisions) {
  if (generation_ < 0 || ending_ || interrupted_ || finishing_) return;
  const auto working = static_cast<int>(in_state(State::working).size());
  const auto waiting = static_cast<int>(in_state(State::waiting).size());
  const bool can_grow = std::min(working + waiting, options_.target) - working >= options_.unit;
  if (!can_grow && working <= options_.target) return;
  interrupted_ = true;
  decisions.interrupt = in_state(State::working);
}

// Dismisses the waiting newcomers: there is no work left for them.
void Roster::send_newcomers_home(Decisions& decisions) {
  for (const Process process : in_state(State::waiting)) {
    if (processes_.at(process).worker >= 0) continue;
    decisions.dismissed.push_back(process);
    processes_.erase(process);
  }
}

void Roster::give_up_on_missing(Decisions& decisions, Time now) {
  const std::vector<Process> at_work = in_state(State::working);
  const bool missing = ending_ && !at_work.empty() && !in_state(State::waiting).empty();
  if (!has_lasted(missing_since_, missing, options_.regroup_timeout, now)) return;
  if (taken_over_ && !options_.by_claim) {
    decisions.failure = fail(fmt::format("the coordinator was lost, and {} of its workers neither "
                                         "came nor ended: they may continue without the others",
                                         at_work.size()))
                            .failure;
    return;
  }
  for (const Process process : at_work) {
    processes_[process].state = State::gone;
    decisions.missed.push_back(process);
  }
}

bool Roster::is_enough(int waiting) const {
  if (finishing_) return waiting >= options_.unit;
  return waiting >= (generation_ < 0 ? options_.target : options_.minimum);
}

void Roster::form_or_fail(Decisions& decisions, Time now) {
  const auto waiting = static_cast<int>(in_state(State::waiting).size());
  const bool possible = ending_ && waiting > 0 && in_state(State::working).empty();
  const bool enough = is_enough(waiting) && is_claimed(now);
  const auto timeout = generation_ < 0 ? options_.first_timeout : options_.refill_timeout;
  const bool waited = has_lasted(short_since_, possible && !enough, timeout, now);
  if (possible && (enough || (waited && waiting >= options_.minimum && is_claimed(now))))
    return form(decisions);
  // No newcomer is admitted any more that could fill the unit.
  const bool in_vain = possible && finishing_ && waiting < options_.unit && is_claimed(now);
  if (in_vain && a_unit_is_done()) return send_home(decisions);
  if (!waited && !in_vain) return;
  std::string why = fmt::format(
      "{} are there, but their coordinator does not hold the job's name in etcd, and another one "
      "may",
      waiting);
  if (in_vain)
    why = fmt::format("{} of the {} processes of a unit{} are there, and the job is about to end",
                      waiting, options_.unit,
                      options_.shape.empty() ? "" : fmt::format(" ({})", options_.shape));
  else if (waiting < options_.minimum)
    why = fmt::format("{} of at least {} processes are there", waiting, options_.minimum);
  decisions.failure = fail(why).failure;
}

// Whether all members of a unit have said goodbye: then the whole work is done.
bool Roster::a_unit_is_done() const {
  std::map<int, int> done;  // By unit.
  for (const auto& [process, entry] : processes_)
    if (entry.is_done && entry.worker >= 0 &&
        ++done[entry.worker / options_.unit] == options_.unit)
      return true;
  return false;
}

void Roster::send_home(Decisions& decisions) {
  for (const Process process : in_state(State::waiting)) {
    decisions.dismissed.push_back(process);
    processes_.erase(process);
  }
}

void Roster::form(Decisions& decisions) {
  std::vector<Process> members =
      options_.unit > 1 ? in_units(decisions) : by_newest_state(decisions);
  ++generation_;
  std::erase_if(processes_, [](const auto& each) { return each.second.state == State::gone; });
  for (auto& [process, entry] : processes_) entry.worker = -1;  // The others wait as spares.
  std::vector<int64_t> steps;
  for (size_t i = 0; i < members.size(); ++i) {
    Entry& entry = processes_.at(members[i]);
    const int position = static_cast<int>(i) % options_.unit;
    entry.state = State::working;
    entry.worker = static_cast<int>(i);
    // The state of another position is of no use here.
    const bool fits = options_.unit == 1 || entry.position == position;
    steps.push_back(fits ? entry.step : -1);
    entry.position = position;
  }
  // The generation goes on without the spares, so their state will be old.
  for (const Process spare : in_state(State::waiting))
    if (options_.unit > 1) processes_.at(spare).step = -1;
  const int64_t newest = std::ranges::max(steps);
  decisions.formed.push_back({generation_, std::move(members), newest, std::move(steps)});
  ending_ = interrupted_ = taken_over_ = false;
  missing_since_.reset();
  short_since_.reset();
}

std::vector<Roster::Process> Roster::by_newest_state(Decisions& decisions) {
  std::vector<Process> members = in_state(State::waiting);
  std::ranges::sort(members, {}, [this](Process process) {
    const Entry& entry = processes_.at(process);
    return std::tuple(-entry.step, entry.worker < 0, entry.worker, process);
  });
  while (static_cast<int>(members.size()) > options_.target) {
    const Process surplus = members.back();
    members.pop_back();
    if (processes_.at(surplus).worker < 0) continue;  // A newcomer continues to wait, as a spare.
    processes_.erase(surplus);
    decisions.dismissed.push_back(surplus);
  }
  return members;
}

// Members of a unit that cannot be filled continue to wait, as spares, unless fewer are wanted.
std::vector<Roster::Process> Roster::in_units(Decisions& decisions) {
  std::vector<UnitCandidate> waiting;
  for (const auto& [process, entry] : processes_)
    if (entry.state == State::waiting)
      waiting.push_back({process, entry.worker, entry.position, entry.step});
  auto [members, left_over] = fill_units(waiting, options_.unit, options_.target);
  int surplus = static_cast<int>(waiting.size()) - options_.target;
  for (; surplus > 0 && !left_over.empty(); left_over.pop_back()) {
    const Process last = left_over.back();
    if (processes_.at(last).worker < 0) continue;  // A newcomer, or a spare.
    processes_.erase(last);
    decisions.dismissed.push_back(last);
    --surplus;
  }
  return members;
}

}  // namespace trireme::membership
