#include <trireme/comm/group.h>
#include <trireme/comm/kin.h>

namespace trireme::comm {

void Kin::add(const std::shared_ptr<Group>& group) {
  const std::lock_guard lock(mutex_);
  std::erase_if(groups_, [](const std::weak_ptr<Group>& each) { return each.expired(); });
  groups_.push_back(group);
}

void Kin::abort(const std::string& reason) {
  std::vector<std::shared_ptr<Group>> groups;
  {
    const std::lock_guard lock(mutex_);
    for (const std::weak_ptr<Group>& each : groups_)
      if (auto group = each.lock()) groups.push_back(std::move(group));
  }
  for (const auto& group : groups) group->do_abort(reason);
}

}  // namespace trireme::comm
