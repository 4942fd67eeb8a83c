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

void EventQueue::put(monitor::Told told) {
  std::vector<monitor::Told>& events = kept_.events;
  if (auto* const step = std::get_if<monitor::StepRecord>(&told.event)) {
    const auto before =
        std::find_if(events.rbegin(), events.rend(),
                     [&](const monitor::Told& each) { return each.rank == told.rank; });
    const auto* const earlier =
        before == events.rend() ? nullptr : std::get_if<monitor::StepRecord>(&before->event);
    if (earlier && earlier->epoch == step->epoch) {
      *step = monitor::merged(*earlier, *step);
      *before = std::move(told);
      return;
    }
  }
  if (events.size() < most_ || std::holds_alternative<monitor::RunEnd>(told.event))
    events.push_back(std::move(told));
  else
    ++kept_.dropped;
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
