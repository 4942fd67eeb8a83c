// The events of workers (monitor/events.h) on their way to the launcher. A worker keeps them until
// its next heartbeat, which takes them along, so events wake nobody. The coordinator keeps them
// until the launcher asks.
#pragma once
#include <trireme/base/json.h>
#include <trireme/monitor/events.h>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <vector>

namespace trireme::membership {

inline constexpr size_t kEventsOfAHeartbeat = 256;

struct EventBatch {
  std::vector<monitor::Told> events;  // In the order in which they were told.
  // The number of events before them for which there was no room.
  int64_t dropped = 0;
  bool empty() const { return events.empty() && dropped == 0; }
};

// Any thread. No call waits for anything but another call.
class EventQueue {
 public:
  explicit EventQueue(size_t most) : most_(most) {}
  // A step joins the same rank's step of that epoch directly before it (monitor::merged()), and
  // once the queue is half full also that of another epoch. If there is no room, the oldest step
  // is dropped and counted, or else the new event, unless it is the end of the run.
  void add(monitor::Told told);
  void add(EventBatch batch);
  EventBatch take();

 private:
  // The caller holds the mutex of these two.
  void put(monitor::Told told);
  bool merge(monitor::Told& step);

  const size_t most_;
  std::mutex mutex_;  // Guards the next member.
  EventBatch kept_;
};

// The message `events` of a worker. Events that cannot be read count as dropped.
Json events_message(const EventBatch& batch);
EventBatch events_from(const Json& message);

}  // namespace trireme::membership
