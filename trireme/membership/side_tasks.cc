#include <fmt/format.h>
#include <trireme/base/units.h>
#include <trireme/membership/protocol.h>
#include <trireme/membership/side_tasks.h>
#include <algorithm>
#include <array>
#include <set>

namespace trireme::membership {
namespace {

std::string to_string(SideTasks::State state) {
  static constexpr std::array kNames{"absent", "present", "left", "lost"};
  return kNames[static_cast<size_t>(state)];
}

void add_agreed(const Role* role, const std::string& with, std::set<std::string>& facts) {
  if (!role) return;
  for (const Agreement& agreement : role->must_agree)
    if (std::ranges::count(agreement.with, with) > 0)
      facts.insert(agreement.facts.begin(), agreement.facts.end());
}

Facts only(const std::set<std::string>& names, const Facts& facts, const Facts& other) {
  Facts some;
  for (const auto& [name, value] : facts)
    if (names.contains(name) && other.contains(name)) some[name] = value;
  return some;
}

}  // namespace

SideTasks::SideTasks(Roles roles, std::chrono::milliseconds heartbeat_timeout)
    : roles_(std::move(roles)),
      heartbeat_timeout_(heartbeat_timeout),
      entries_(static_cast<size_t>(roles_.count())) {
  for (int number = 0; number < roles_.count(); ++number)
    entry(number).peer.task = roles_.task_of(number);
}

std::optional<Failure> SideTasks::join(const TaskRequest& request, const Facts* workers,
                                       Time now) {
  const std::string name = request.task.name(request.host);
  const auto number = roles_.number_of(request.task);
  if (!number)
    return Failure{ErrorCode::invalid_argument,
                   fmt::format("{} is no task of this job, which has {}", name,
                               roles_.empty() ? "workers only" : roles_.describe()),
                   "the same roles for all launchers"};
  Entry& own = entry(*number);
  if (own.state == State::present)
    return Failure{ErrorCode::invalid_argument,
                   fmt::format("{} cannot join: its task is taken by host {}, pid {} (this one "
                               "has pid {})",
                               name, own.peer.host, own.peer.pid, request.pid),
                   "a task of its own for each process"};
  const std::string a_worker = "the workers";
  if (workers)
    if (auto failure = difference(request.task.role, {name, request.facts}, kWorkerRole,
                                  {a_worker, *workers}))
      return failure;
  if (auto failure = difference_from_present(request.task.role, {name, request.facts}))
    return failure;
  own = {State::present,
         {request.task, request.host, request.address, request.pid, own.peer.incarnation + 1},
         request.facts,
         {{Phase::connecting, -1}, now, {}},
         now,
         own.reason};
  return std::nullopt;
}

std::optional<Failure> SideTasks::refuse_worker(const std::string& name,
                                                const Facts& facts) const {
  return difference_from_present(kWorkerRole, {name, facts});
}

std::optional<Failure> SideTasks::difference_from_present(const std::string& role,
                                                          Side one) const {
  for (const Entry& other : entries_) {
    if (other.state != State::present) continue;
    const std::string its_name = other.peer.task.name(other.peer.host);
    if (auto failure = difference(role, one, other.peer.task.role, {its_name, other.facts}))
      return failure;
  }
  return std::nullopt;
}

std::optional<Failure> SideTasks::difference(const std::string& role, Side one,
                                             const std::string& other, Side side) const {
  std::set<std::string> agreed{std::string(kVersionFact)};
  add_agreed(roles_.find(role), other, agreed);
  add_agreed(roles_.find(other), role, agreed);
  const bool same = role == other;
  const auto found =
      first_difference(one.first, same ? one.second : only(agreed, one.second, side.second),
                       side.first, same ? side.second : only(agreed, side.second, one.second));
  if (!found) return std::nullopt;
  return Failure{ErrorCode::invalid_argument, fmt::format("the tasks differ: {}", *found),
                 "start all tasks with the same programme and configuration"};
}

void SideTasks::heard(int number, Time now) { entry(number).heard = now; }

void SideTasks::beat(int number, const PhaseNow& phase, Time now) {
  heard(number, now);
  entry(number).last = phase;
}

void SideTasks::goodbye(int number) {
  if (is_present(number)) entry(number).state = State::left;
}

std::optional<LostWorker> SideTasks::lost(int number, const std::string& reason) {
  Entry& gone = entry(number);
  if (gone.state != State::present) return std::nullopt;
  gone.state = State::lost;
  gone.reason = reason;
  return LostWorker{.worker = kFirstSideTask + number,
                    .host = gone.peer.host,
                    .pid = gone.peer.pid,
                    .last = gone.last.at,
                    .reason = reason,
                    .circumstances = {},
                    .task = gone.peer.task};
}

bool SideTasks::explain(int number, const std::string& reason) {
  Entry& gone = entry(number);
  if (gone.state != State::lost || gone.reason == reason) return false;
  gone.reason = reason;
  return true;
}

std::vector<std::pair<int, std::string>> SideTasks::tick(Time now) {
  // If this process itself paused, the tasks were not silent.
  const auto pause = now - last_tick_.value_or(now);
  last_tick_ = now;
  std::vector<std::pair<int, std::string>> silent;
  for (int number = 0; number < roles_.count(); ++number) {
    Entry& it = entry(number);
    if (it.state != State::present) continue;
    if (pause > heartbeat_timeout_ / 2) it.heard += pause;
    const auto silence = std::chrono::duration_cast<std::chrono::milliseconds>(now - it.heard);
    if (silence > heartbeat_timeout_)
      silent.emplace_back(number, "silent for " + format_duration(silence));
  }
  return silent;
}

Json SideTasks::message(int number) const {
  const Entry& it = entry(number);
  return {{"op", "task"},
          {"role", it.peer.task.role},
          {"index", it.peer.task.index},
          {"state", to_string(it.state)},
          {"host", it.peer.host},
          {"address", it.peer.address},
          {"pid", it.peer.pid},
          {"incarnation", it.peer.incarnation},
          {"reason", it.reason}};
}

Json SideTasks::table() const {
  Json table = Json::array();
  for (int number = 0; number < roles_.count(); ++number) table.push_back(message(number));
  return table;
}

}  // namespace trireme::membership
