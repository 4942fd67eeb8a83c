#include <trireme/plan/push_clock.h>

#include <fmt/format.h>
#include <trireme/base/error.h>
#include <algorithm>
#include <array>
#include <utility>

namespace trireme::plan {
namespace {

constexpr std::array<std::pair<std::string_view, Consistency>, 4> kConsistencies = {
    {{"sync", Consistency::sync},
     {"async", Consistency::async},
     {"stale", Consistency::stale},
     {"delay_compensated", Consistency::delay_compensated}}};

[[noreturn]] void refuse_consistency(const std::string& what, const std::string& remedy = {}) {
  throw Error(ErrorCode::invalid_argument, "plan", what, remedy);
}

Json to_json_of(const std::map<int, int64_t>& clocks) {
  Json list = Json::array();
  for (const auto& [worker, clock] : clocks) list.push_back({worker, clock});
  return list;
}
std::map<int, int64_t> clocks_in(const Json& list) {
  std::map<int, int64_t> clocks;
  for (const Json& each : list) clocks[each[0].get<int>()] = each[1].get<int64_t>();
  return clocks;
}

}  // namespace

std::string_view to_string(Consistency consistency) {
  for (const auto& [name, value] : kConsistencies)
    if (value == consistency) return name;
  return "?";
}

Consistency consistency_from_string(std::string_view name) {
  for (const auto& [known, value] : kConsistencies)
    if (known == name) return value;
  refuse_consistency(fmt::format("ps.consistency is '{}'", name),
                     "sync, async, stale or delay_compensated");
}

Json to_json(const ConsistencyOptions& options) {
  return {{"consistency", to_string(options.consistency)},
          {"staleness", options.staleness},
          {"backup_workers", options.backup_workers}};
}

ConsistencyOptions consistency_in(const Json& json) {
  return {consistency_from_string(json.at("consistency").get<std::string>()),
          json.at("staleness").get<int>(), json.at("backup_workers").get<int>()};
}

void check(const ConsistencyOptions& options, int workers) {
  if (options.staleness < 0)
    refuse_consistency(fmt::format("ps.staleness is {}", options.staleness), "0 or more");
  if (options.staleness > 0 && options.consistency != Consistency::stale)
    refuse_consistency(fmt::format("ps.staleness is {}, and ps.consistency is {}",
                                   options.staleness, to_string(options.consistency)),
                       "ps.consistency=stale");
  if (options.backup_workers < 0)
    refuse_consistency(fmt::format("ps.backup_workers is {}", options.backup_workers),
                       "0 or more");
  if (options.backup_workers > 0 && options.consistency != Consistency::sync)
    refuse_consistency(fmt::format("ps.backup_workers is {}, and ps.consistency is {}",
                                   options.backup_workers, to_string(options.consistency)),
                       "ps.consistency=sync");
  if (options.backup_workers >= std::max(1, workers) && options.backup_workers > 0)
    refuse_consistency(
        fmt::format("ps.backup_workers is {}, and there are {} workers: no update would take any "
                    "push",
                    options.backup_workers, workers),
        fmt::format("ps.backup_workers={} or less", std::max(0, workers - 1)));
}

PushClock::PushClock(ConsistencyOptions options, int workers) : options_(options) {
  for (int worker = 0; worker < workers; ++worker) next_[worker] = 0;
}

PushClock::Verdict PushClock::push(int worker, int64_t clock) {
  const auto found = next_.find(worker);
  if (found == next_.end())
    refuse_consistency(
        fmt::format("worker {} pushes its step {}, and has not joined", worker, clock));
  int64_t& next = found->second;
  if (clock < next) return Verdict::repeated;
  const bool is_sync = options_.consistency == Consistency::sync;
  if (is_sync && clock > step_)
    refuse_consistency(fmt::format("worker {} pushes its step {} before the update of step {}",
                                   worker, clock, step_),
                       "a pull before each step");
  // Updates that did not wait for a worker let it leave steps out.
  if (clock > std::max(next, step_))
    refuse_consistency(fmt::format("worker {} pushes its step {}, but its step {} has not come",
                                   worker, clock, next));
  next = clock + 1;
  if (!is_sync) {
    ++updates_;
    return Verdict::update;
  }
  if (clock < step_) return Verdict::late;
  gathered_.insert(worker);
  return completes_step() ? Verdict::complete : Verdict::gather;
}

PushClock::Verdict PushClock::drop(int worker, int64_t clock) {
  const auto found = next_.find(worker);
  if (found == next_.end() || clock < found->second) return Verdict::repeated;
  found->second = clock + 1;
  return Verdict::late;
}

void PushClock::follow(const std::vector<Pushed>& update) {
  for (const auto& [worker, clock] : update) {
    if (const auto found = next_.find(worker); found != next_.end())
      found->second = std::max(found->second, clock + 1);
    if (options_.consistency == Consistency::sync) step_ = std::max(step_, clock + 1);
  }
  ++updates_;
}

void PushClock::resume(int worker, int64_t clock) {
  if (const auto found = next_.find(worker); found != next_.end())
    found->second = std::max(found->second, clock);
}

// Ends the step if enough pushes have come.
bool PushClock::completes_step() {
  if (gathered_.empty()) return false;
  // A worker that has pushed and left counts for none of those that are there.
  const auto pushed = std::ranges::count_if(
      next_, [&](const auto& each) { return gathered_.contains(each.first); });
  const int wanted = std::max(std::min(1, workers()), workers() - options_.backup_workers);
  return pushed >= wanted && flush();
}

bool PushClock::flush() {
  if (gathered_.empty()) return false;
  gathered_.clear();
  ++step_;
  ++updates_;
  return true;
}

bool PushClock::may_begin(int worker, int64_t clock) const {
  if (!next_.contains(worker)) return false;
  switch (options_.consistency) {
    case Consistency::sync: return clock <= step_;
    case Consistency::stale: return clock - slowest()->clock <= options_.staleness;
    case Consistency::async:
    case Consistency::delay_compensated: return true;
  }
  return true;
}

int64_t PushClock::step_to_begin(int worker, int64_t clock) const {
  if (const auto own = next_.find(worker); own != next_.end())
    clock = std::max(clock, own->second);
  return options_.consistency == Consistency::sync ? std::max(clock, step_) : clock;
}

int64_t PushClock::join(int worker) {
  if (const auto found = next_.find(worker); found != next_.end())
    return step_to_begin(worker, found->second);
  int64_t clock = 0;
  if (const auto before = left_.extract(worker); !before.empty()) clock = before.mapped();
  // A newcomer must not hold up those that have come far.
  if (options_.consistency == Consistency::sync)
    clock = std::max(clock, step_);
  else if (const auto last = slowest())
    clock = std::max(clock, last->clock);
  next_[worker] = clock;
  return clock;
}

bool PushClock::leave(int worker) {
  const auto found = next_.extract(worker);
  if (found.empty()) return false;
  left_.insert_or_assign(worker, found.mapped());
  return options_.consistency == Consistency::sync && completes_step();
}

// Clocks of a mode in which workers run ahead may lie apart. A step of `sync` begins behind all of
// them, so that no push of before counts as one of it.
bool PushClock::change(ConsistencyOptions options) {
  const bool was_sync = options_.consistency == Consistency::sync;
  options_ = options;
  if (options.consistency != Consistency::sync) {
    // The pushes that were gathered for a step become an update.
    const bool any = was_sync && !gathered_.empty();
    gathered_.clear();
    if (any) ++updates_;
    return any;
  }
  if (was_sync) return completes_step();
  for (const auto* const clocks : {&next_, &left_})
    for (const auto& [worker, clock] : *clocks) step_ = std::max(step_, clock);
  return false;
}

std::optional<PushClock::Slowest> PushClock::slowest() const {
  std::optional<Slowest> slowest;
  for (const auto& [worker, clock] : next_)
    if (!slowest || clock < slowest->clock) slowest = {worker, clock};
  return slowest;
}

std::string PushClock::reason_to_wait(int worker) const {
  const auto last = slowest();
  if (!last || last->worker == worker) return "it has not joined";
  return fmt::format(
      "with ps.consistency={} it waits for worker {}, which has not pushed its step {}",
      to_string(options_.consistency), last->worker, last->clock);
}

Json PushClock::to_json() const {
  return {{"options", plan::to_json(options_)},
          {"next", to_json_of(next_)},
          {"left", to_json_of(left_)},
          {"step", step_},
          {"gathered", gathered_},
          {"updates", updates_}};
}

PushClock PushClock::from_json(const Json& json) {
  PushClock clock(consistency_in(json["options"]), /*workers=*/0);
  clock.next_ = clocks_in(json["next"]);
  clock.left_ = clocks_in(json["left"]);
  clock.step_ = json["step"];
  clock.gathered_ = json["gathered"].get<std::set<int>>();
  clock.updates_ = json["updates"];
  return clock;
}

}  // namespace trireme::plan
