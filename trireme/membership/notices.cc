#include <fmt/format.h>
#include <trireme/base/units.h>
#include <trireme/membership/notices.h>
#include <trireme/membership/protocol.h>
#include <trireme/watch/phase_marks.h>
#include <algorithm>

namespace trireme::membership {
namespace {

using Time = Stalls::Time;

// After a shorter wait the place of another worker may not be known yet.
constexpr std::chrono::seconds kProofPatience{2};

std::string duration(Time from, Time to) {
  return format_duration(std::chrono::duration_cast<std::chrono::milliseconds>(
      std::max(to - from, Time::duration::zero())));
}

bool is_agreement(const PhaseAt& at) { return at.collective.operation == watch::kAgreement; }

// Whether `other` waits in a collective that the worker at `place` has not come to, or not passed.
bool waits_for(const WorkerNow& other, const PhaseAt& place) {
  return other.now.at.collective.waits && !is_agreement(other.now.at) &&
         other.now.at.step >= place.step;
}

std::vector<const WorkerNow*> waiting_for(const PhaseAt& place,
                                          const std::vector<WorkerNow>& others) {
  std::vector<const WorkerNow*> waiting;
  for (const WorkerNow& other : others)
    if (waits_for(other, place)) waiting.push_back(&other);
  return waiting;
}

std::string who_waits(const std::vector<const WorkerNow*>& waiting) {
  std::vector<std::string> names;
  for (const WorkerNow* one : waiting) names.push_back(one->name());
  return fmt::format("{} {} for it in {}", enumerate(names), names.size() == 1 ? "waits" : "wait",
                     waiting.back()->now.at.describe());
}

// Whether two workers are in the same collective: step, number, operation and size must be equal.
bool same_place(const PhaseAt& a, const PhaseAt& b) {
  return a.step == b.step && a.collective.number == b.collective.number &&
         a.collective.operation == b.collective.operation &&
         a.collective.bytes == b.collective.bytes;
}

// Whether not all workers take part.
bool is_among_some(const PhaseAt& at) {
  return at.collective.operation.ends_with(watch::kOfSomeRanks);
}

std::string where_since(const WorkerNow& one, Time now) {
  return fmt::format("{} in {} for {}", one.name(), one.now.at.describe(),
                     duration(one.now.since, now));
}

// Whether two waiting workers have come to different operations with one number. The bytes of some
// operations differ between ranks.
bool contradict(const PhaseAt& a, const PhaseAt& b) {
  const CollectiveAt &one = a.collective, &other = b.collective;
  if (a.step != b.step || one.number != other.number) return false;
  return one.operation != other.operation ||
         ((one.operation == "all_reduce" || one.operation == "broadcast") &&
          one.bytes != other.bytes);
}

// Whether a worker that left at `place` has not begun the collective at `other`.
bool left_before(const PhaseAt& place, const PhaseAt& other) {
  if (place.step == other.step) return place.collective.number < other.collective.number;
  return place.step >= 1 && place.step < other.step;
}

struct Elsewhere {
  const WorkerNow* worker;
  Notice notice;
};

// The workers that wait in another place than most, or one of them if there is no majority.
std::vector<Elsewhere> those_elsewhere(const std::vector<WorkerNow>& present, Time now) {
  const auto at = [](const WorkerNow& one) -> const PhaseAt& { return one.now.at; };
  const auto alike = [&](const WorkerNow& one) {
    return std::ranges::count_if(
        present, [&](const WorkerNow& other) { return same_place(at(one), at(other)); });
  };
  const WorkerNow& usual = *std::ranges::max_element(present, {}, alike);
  const bool is_majority = 2 * static_cast<size_t>(alike(usual)) > present.size();
  std::vector<Elsewhere> found;
  for (const WorkerNow& one : present) {
    if (is_majority && same_place(at(one), at(usual))) continue;
    std::vector<std::string> elsewhere;
    for (const WorkerNow& other : present)
      if (!same_place(at(one), at(other))) elsewhere.push_back(where_since(other, now));
    const std::string text = is_majority ? fmt::format(
                                               "{} called a different operation than the others: "
                                               "it has waited in {} for {}; {}",
                                               one.full_name(), at(one).describe(),
                                               duration(one.now.since, now), enumerate(elsewhere))
                                         : fmt::format(
                                               "the workers wait for each other in different "
                                               "places, because one of them called "
                                               "a different operation: {}; {}",
                                               where_since(one, now), enumerate(elsewhere));
    found.push_back({&one, {text, record_of("mismatched", one, present, now), one.pid}});
    if (!is_majority) break;
  }
  return found;
}

}  // namespace

std::string WorkerNow::name() const { return worker_name(worker, host); }
std::string WorkerNow::full_name() const {
  return host.empty() ? fmt::format("worker {} (pid {})", worker, pid)
                      : fmt::format("worker {} (host {}, pid {})", worker, host, pid);
}

std::string circumstances(const PhaseNow& place, const std::vector<WorkerNow>& others, Time now) {
  const auto waiting = waiting_for(place.at, others);
  const CollectiveAt& collective = place.at.collective;
  const std::string since =
      fmt::format("it had been there{} for {}",
                  collective.inside ? fmt::format(" ({})", collective.describe()) : "",
                  duration(place.since, now));
  return waiting.empty() ? since : fmt::format("{}, and {}", since, who_waits(waiting));
}

Json record_of(const std::string& kind, const WorkerNow& whose,
               const std::vector<WorkerNow>& others, Time now) {
  const PhaseAt& at = whose.now.at;
  Json waiting = Json::array();
  for (const WorkerNow* one : waiting_for(at, others)) waiting.push_back(one->rank);
  return {{"kind", kind},
          {"rank", whose.rank},
          {"pid", whose.pid},
          {"host", whose.host},
          {"phase", std::string(to_string(at.phase))},
          {"step", at.step},
          {"collective", at.collective.number},
          {"operation", at.collective.inside ? at.collective.operation : std::string()},
          {"seconds", std::chrono::duration<double>(now - whose.now.since).count()},
          {"waiting", waiting}};
}

std::vector<Notice> Stalls::judge(const std::vector<WorkerNow>& present, Time now) {
  const bool all = present.size() > 1 && std::ranges::all_of(present, [&](const WorkerNow& one) {
                     return one.now.at.collective.waits && now - one.now.since >= timeout_;
                   });
  return all ? all_wait(present, now) : those_at_work(present, now);
}

bool Stalls::is_new(int worker, const PhaseAt& at) {
  const Place place{at.step, at.collective.number};
  const auto [named, fresh] = named_.try_emplace(worker, place);
  if (!fresh && named->second == place) return false;
  named->second = place;
  return true;
}

std::vector<Notice> Stalls::those_at_work(const std::vector<WorkerNow>& present, Time now) {
  std::vector<Notice> notices;
  for (const WorkerNow& one : present) {
    const PhaseAt& at = one.now.at;
    if (at.collective.waits || now - one.now.since < timeout_) continue;
    std::vector<WorkerNow> others = present;
    std::erase_if(others,
                  [&](const WorkerNow& other) { return now - other.now.since < timeout_; });
    const auto waiting = waiting_for(at, others);
    if (waiting.empty() || !is_new(one.worker, at)) continue;
    notices.push_back(
        {fmt::format("stalled: {} has been in {} for {}; {}", one.full_name(), at.describe(),
                     duration(one.now.since, now), who_waits(waiting)),
         record_of("stalled", one, others, now), one.pid});
  }
  return notices;
}

std::vector<Notice> Stalls::all_wait(const std::vector<WorkerNow>& present, Time now) {
  const auto at = [](const WorkerNow& one) -> const PhaseAt& { return one.now.at; };
  if (std::ranges::any_of(present, is_among_some, at)) return {};
  const WorkerNow& first = present.front();
  if (std::ranges::all_of(present,
                          [&](const WorkerNow& one) { return same_place(at(one), at(first)); })) {
    if (!is_new(-1, at(first))) return {};
    Json record = record_of("unconnected", first, present, now);
    for (const char* whose : {"rank", "pid", "host"}) record.erase(whose);
    return {{fmt::format("all workers have waited for each other in {} for {}: each has come "
                         "there, so the connections between them do not work",
                         at(first).describe(), duration(first.now.since, now)),
             std::move(record)}};
  }
  std::vector<Notice> notices;
  for (Elsewhere& each : those_elsewhere(present, now))
    if (is_new(each.worker->worker, at(*each.worker))) notices.push_back(std::move(each.notice));
  return notices;
}

std::optional<Notice> Stalls::find_deadlock(const std::vector<WorkerNow>& present,
                                            const std::vector<WorkerNow>& left, Time now) const {
  const auto at = [](const WorkerNow& one) -> const PhaseAt& { return one.now.at; };
  const auto waited = [&](std::chrono::milliseconds patience) {
    return std::ranges::all_of(present, [&](const WorkerNow& one) {
      return at(one).collective.waits && !is_among_some(at(one)) &&
             now - one.now.since >= patience;
    });
  };
  if (present.empty() || !waited(kProofPatience)) return std::nullopt;
  const WorkerNow& first = present.front();
  for (const WorkerNow& gone : left)
    if (!is_agreement(at(first)) && left_before(at(gone), at(first)))
      return Notice{fmt::format("{} has left the job in {}, and {}", gone.full_name(),
                                at(gone).brief(), who_waits({&first})),
                    record_of("mismatched", gone, present, now)};
  const auto agreements = std::ranges::count_if(present, is_agreement, at);
  // Collectives and agreements do not end without each other, whatever their numbers are.
  const bool is_proven =
      std::ranges::any_of(present,
                          [&](const WorkerNow& one) { return contradict(at(one), at(first)); }) ||
      (agreements > 0 && agreements < std::ssize(present) && waited(timeout_));
  if (!is_proven) return std::nullopt;
  return those_elsewhere(present, now).front().notice;
}

}  // namespace trireme::membership
