// The groups that a World made in one generation. If a rank gives up in one of them, it gives up
// in all of them, because the others may wait for it anywhere. Groups that hold only other ranks
// of its process end too.
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
  // `rank`: the rank of the world whose group it is.
  void add(const std::shared_ptr<Group>& group, int rank);
  // Aborts all groups. `rank` gives up.
  void abort(int rank, const std::string& reason);

 private:
  struct Member {
    std::weak_ptr<Group> group;
    int rank;
  };
  std::mutex mutex_;
  std::vector<Member> members_;
};

}  // namespace trireme::comm
