#include <trireme/membership/event_queue.h>
#include <trireme/monitor/event_json.h>
#include <algorithm>
#include <utility>

namespace trireme::membership {

void EventQueue::add(monitor::Told told) {
  const std::lock_guard lock(mutex_);
  put(std::move(told));
}

void EventQueue::add(EventBatch batch) {
  const std::lock_guard lock(mutex_);
  kept_.dropped += batch.dropped;
  for (monitor::Told& told : batch.events) put(std::move(told));
}

EventBatch EventQueue::take() {
  const std::lock_guard lock(mutex_);
  return std::exchange(kept_, {});
}

// Returns false if `told` is no step, or if there is no step that it can join.
bool EventQueue::merge(monitor::Told& told) {
  auto* const step = std::get_if<monitor::StepRecord>(&told.event);
  if (!step) return false;
  std::vector<monitor::Told>& events = kept_.events;
  const auto before = std::find_if(events.rbegin(), events.rend(), [&](const monitor::Told& each) {
    return each.rank == told.rank;
  });
  if (before == events.rend()) return false;
  const auto* const earlier = std::get_if<monitor::StepRecord>(&before->event);
  if (!earlier || (earlier->epoch != step->epoch && 2 * events.size() < most_)) return false;
  *step = monitor::merged(*earlier, *step);
  *before = std::move(told);
  return true;
}

void EventQueue::put(monitor::Told told) {
  if (merge(told)) return;
  std::vector<monitor::Told>& events = kept_.events;
  if (events.size() >= most_ && !std::holds_alternative<monitor::RunEnd>(told.event)) {
    ++kept_.dropped;
    const auto step = std::ranges::find_if(events, [](const monitor::Told& each) {
      return std::holds_alternative<monitor::StepRecord>(each.event);
    });
    if (step == events.end()) return;
    events.erase(step);
  }
  events.push_back(std::move(told));
}

Json events_message(const EventBatch& batch) {
  Json events = Json::array();
  for (const monitor::Told& told : batch.events) events.push_back(monitor::to_json(told));
  return {{"op", "events"}, {"events", std::move(events)}, {"dropped", batch.dropped}};
}

EventBatch events_from(const Json& message) {
  EventBatch batch;
  batch.dropped = message.at("dropped").get<int64_t>();
  for (const Json& json : message.at("events"))
    if (auto told = monitor::told_of(json))
      batch.events.push_back(*std::move(told));
    else
      ++batch.dropped;
  return batch;
}

}  // namespace trireme::membership
