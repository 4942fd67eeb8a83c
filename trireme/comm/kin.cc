#include <fmt/format.h>
#include <trireme/comm/group.h>
#include <trireme/comm/kin.h>
#include <utility>

namespace trireme::comm {

void Kin::add(const std::shared_ptr<Group>& group, int rank) {
  const std::lock_guard lock(mutex_);
  std::erase_if(members_, [](const Member& each) { return each.group.expired(); });
  members_.push_back({group, rank});
}

// Ranks of one process share what an abort ends, and the first reason stays. So the groups of the
// rank that gives up come first: they know it by its own number.
void Kin::abort(int rank, const std::string& reason) {
  std::vector<std::shared_ptr<Group>> its, others;
  {
    const std::lock_guard lock(mutex_);
    for (const Member& each : members_)
      if (auto group = each.group.lock())
        (each.rank == rank ? its : others).push_back(std::move(group));
  }
  for (const auto& group : its) group->do_abort(reason);
  for (const auto& group : others)
    group->do_abort(fmt::format("rank {} of the world gave up: {}", rank, reason));
}

}  // namespace trireme::comm
