// Records the events of a server or a client, so that a test can wait for them.
#pragma once
#include <trireme/net/control.h>
#include <condition_variable>
#include <map>
#include <mutex>
#include <string>
#include <vector>

namespace trireme::net {

inline Deadline soon() { return Deadline::after(Milliseconds(5000)); }
inline const Endpoint kAnyPort{"127.0.0.1", 0};

class Recorder {
 public:
  ServerEvents server_events() {
    return {.opened =
                [this](ConnectionId id, const std::string& peer, Purpose purpose) {
                  note([&] {
                    opened[id] = peer;
                    purposes[id] = purpose;
                  });
                },
            .received =
                [this](ConnectionId id, Json message) {
                  note([&] { received.emplace_back(id, std::move(message)); });
                },
            .closed = [this](ConnectionId id,
                             const std::string& reason) { note([&] { closed[id] = reason; }); },
            .tick = [this] { note([&] { ++ticks; }); }};
  }
  ClientEvents client_events() {
    return {
        .received =
            [this](Json message) { note([&] { received.emplace_back(0, std::move(message)); }); },
        .closed = [this](const std::string& reason) { note([&] { closed[0] = reason; }); }};
  }
  // Returns true once `condition` holds, false after five seconds.
  template <typename Condition>
  bool wait(Condition condition) {
    std::unique_lock lock(mutex_);
    return changed_.wait_until(lock, soon().at(), condition);
  }
  template <typename Read>
  auto look(Read read) {
    std::lock_guard lock(mutex_);
    return read();
  }

  // Guarded by the mutex: read these only inside wait() and look().
  std::map<ConnectionId, std::string> opened;
  std::map<ConnectionId, Purpose> purposes;
  std::vector<std::pair<ConnectionId, Json>> received;
  std::map<ConnectionId, std::string> closed;
  int ticks = 0;

 private:
  void note(const std::function<void()>& change) {
    std::lock_guard lock(mutex_);
    change();
    changed_.notify_all();
  }
  std::mutex mutex_;
  std::condition_variable changed_;
};

}  // namespace trireme::net
