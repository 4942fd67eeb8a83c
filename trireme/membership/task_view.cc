#include <trireme/membership/task_view.h>

#include <fmt/format.h>
#include <algorithm>

namespace trireme::membership {

void TaskView::note(const Json& task) {
  const TaskPeer peer{{task.at("role").get<std::string>(), task.at("index").get<int>()},
                      task.at("host").get<std::string>(),
                      task.at("address").get<std::string>(),
                      task.at("pid").get<int>(),
                      task.at("incarnation").get<int>()};
  const std::string state = task.at("state").get<std::string>();
  const std::string reason = task.at("reason").get<std::string>();
  Entry& entry = tasks_[{peer.task.role, peer.task.index}];
  entry = {peer, state == "present", state == "lost" ? reason : ""};
  if (state == "lost") return note_lost(peer, reason);
  for (LostTask& lost : lost_)
    if (lost.who.task == peer.task && lost.who.incarnation < peer.incarnation) lost.is_back = true;
}

void TaskView::note_lost(const TaskPeer& who, const std::string& reason) {
  const auto known = std::ranges::find_if(lost_, [&](const LostTask& lost) {
    return lost.who.task == who.task && lost.who.incarnation == who.incarnation &&
           lost.who.pid == who.pid;
  });
  if (known != lost_.end())
    known->reason = reason;
  else
    lost_.push_back({who, reason});
}

void TaskView::note_workers(const Json& peers) {
  std::erase_if(tasks_, [](const auto& each) { return each.first.first == kWorkerRole; });
  for (const Json& peer : peers) {
    const Task task{kWorkerRole, peer.at("worker").get<int>()};
    tasks_[{task.role, task.index}] = {
        {task, peer.at("host").get<std::string>(), peer.at("address").get<std::string>(),
         peer.at("pid").get<int>(), 1},
        true,
        ""};
  }
}

std::vector<TaskPeer> TaskView::present(const std::string& role) const {
  std::vector<TaskPeer> present;
  for (const auto& [key, entry] : tasks_)
    if (key.first == role && entry.is_present) present.push_back(entry.peer);
  return present;
}

std::vector<std::string> TaskView::missing(const std::string& role) const {
  std::vector<std::string> missing;
  bool any = false;
  for (const auto& [key, entry] : tasks_) {
    if (key.first != role) continue;
    any = true;
    if (entry.is_present) continue;
    const std::string name = entry.peer.task.name(entry.peer.host);
    missing.push_back(
        entry.reason.empty() ? name : fmt::format("{}, which was lost: {}", name, entry.reason));
  }
  if (!any) missing.emplace_back("the workers");
  return missing;
}

bool TaskView::has_role(const std::string& role) const {
  return role == kWorkerRole ||
         std::ranges::any_of(tasks_, [&](const auto& each) { return each.first.first == role; });
}

std::vector<std::string> TaskView::roles() const {
  std::vector<std::string> roles{kWorkerRole};
  for (const auto& [key, entry] : tasks_)
    if (std::ranges::count(roles, key.first) == 0) roles.push_back(key.first);
  return roles;
}

}  // namespace trireme::membership
