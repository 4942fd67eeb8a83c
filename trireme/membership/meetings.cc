#include <fmt/format.h>
#include <trireme/base/units.h>
#include <trireme/membership/meetings.h>

namespace trireme::membership {

Membership::Messages Meetings::arrive(const std::string& where, int worker, Arrival arrival) {
  Arrivals& arrivals = open_[where];
  const int64_t request = arrival.request;
  if (!arrivals.emplace(worker, std::move(arrival)).second)
    return {
        {worker,
         reply_to(request,
                  {ErrorCode::invalid_argument,
                   fmt::format("{} entered {} twice at the same time", name_of_(worker), where),
                   "a name of its own for each meeting, or one thread that enters it"})}};
  if (arrivals.size() < static_cast<size_t>(workers_)) return {};

  const auto difference = compare(where, arrivals);
  Messages messages;
  for (const auto& [who, its] : arrivals)
    messages.push_back(
        {who, difference ? reply_to(its.request, *difference) : reply_to(its.request)});
  open_.erase(where);
  return messages;
}

std::optional<Failure> Meetings::compare(const std::string& where,
                                         const Arrivals& arrivals) const {
  const auto& [first, reference] = *arrivals.begin();
  for (const auto& [worker, arrival] : arrivals) {
    const auto difference =
        first_difference(name_of_(first), reference.facts, name_of_(worker), arrival.facts);
    if (!difference) continue;
    return Failure{ErrorCode::invalid_argument,
                   fmt::format("the workers differ in {}: {}", where, *difference),
                   "start all workers with the same programme and configuration"};
  }
  return std::nullopt;
}

std::string Meetings::describe_missing(const Arrivals& arrivals) const {
  std::vector<std::string> missing;
  for (int worker = 0; worker < workers_; ++worker) {
    if (!arrivals.contains(worker)) missing.push_back(name_of_(worker));
  }
  return enumerate(missing);
}

Membership::Messages Meetings::fail_all(const std::function<Failure(const std::string&)>& why) {
  Messages messages;
  for (const auto& [where, arrivals] : open_) {
    for (const auto& [worker, arrival] : arrivals)
      messages.push_back({worker, reply_to(arrival.request, why(where))});
  }
  open_.clear();
  return messages;
}

Membership::Messages Meetings::tick(Time now) {
  Messages messages;
  for (auto& [where, arrivals] : open_) {
    const std::string missing = describe_missing(arrivals);
    for (auto entry = arrivals.begin(); entry != arrivals.end();) {
      const auto& [worker, arrival] = *entry;
      if (now < arrival.deadline) {
        ++entry;
        continue;
      }
      const auto waited =
          std::chrono::duration_cast<std::chrono::milliseconds>(arrival.deadline - arrival.since);
      messages.push_back(
          {worker, reply_to(arrival.request, {ErrorCode::timeout,
                                              fmt::format("{} did not come to {} within {}",
                                                          missing, where, format_duration(waited)),
                                              "check what they do, or allow more time"})});
      entry = arrivals.erase(entry);
    }
  }
  std::erase_if(open_, [](const auto& meeting) { return meeting.second.empty(); });
  return messages;
}

}  // namespace trireme::membership
