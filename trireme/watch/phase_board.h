// The pages of all processes that a launcher has started (phase_page.h). They tell what a
// process is doing, or was doing when it ended.
#pragma once
#include <trireme/watch/phase_page.h>
#include <map>
#include <memory>
#include <mutex>
#include <optional>

namespace trireme::watch {

// Any thread.
class PhaseBoard {
 public:
  void add(int64_t process, std::shared_ptr<PhasePage> page) {
    const std::lock_guard lock(mutex_);
    pages_[process] = std::move(page);
  }
  void remove(int64_t process) {
    const std::lock_guard lock(mutex_);
    pages_.erase(process);
  }
  // Empty if there is no such process, or it has written nothing.
  std::optional<PhaseNow> look_at(int64_t process) const {
    const std::lock_guard lock(mutex_);
    const auto found = pages_.find(process);
    return found == pages_.end() ? std::nullopt : found->second->read();
  }

 private:
  mutable std::mutex mutex_;
  std::map<int64_t, std::shared_ptr<PhasePage>> pages_;
};

}  // namespace trireme::watch
