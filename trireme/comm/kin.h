// The groups that a World made in one generation. If a rank gives up in one of them, it gives up
// in all of them, because the others may wait for it anywhere.
#pragma once
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace trireme {
class Group;
}

namespace trireme::comm {

// Any thread.
class Kin {
 public:
  void add(const std::shared_ptr<Group>& group);
  // Aborts all groups.
  void abort(const std::string& reason);

 private:
  std::mutex mutex_;
  std::vector<std::weak_ptr<Group>> groups_;
};

}  // namespace trireme::comm
