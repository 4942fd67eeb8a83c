// The tasks of a job as one of its processes knows them, from the coordinator's messages `task`.
#pragma once
#include <trireme/base/json.h>
#include <trireme/membership/roles.h>
#include <trireme/membership/side_tasks.h>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace trireme::membership {

// A task whose process was lost. Its replacement has the next incarnation.
struct LostTask {
  TaskPeer who;
  std::string reason;    // "connection closed", "killed by signal 9 (SIGKILL)"
  bool is_back = false;  // Another process has the task since.
};

// One thread at a time may use an object.
class TaskView {
 public:
  void note(const Json& task);           // A message `task`.
  void note_workers(const Json& peers);  // The workers of the generation that has begun.
  // The tasks of the role that are there, by index.
  std::vector<TaskPeer> present(const std::string& role) const;
  // The tasks of the role that are not there, with the reasons: "ps 1 (host b), which was lost:
  // connection closed". Empty once all are there; before the workers have begun, "the workers".
  std::vector<std::string> missing(const std::string& role) const;
  bool has_role(const std::string& role) const;
  std::vector<std::string> roles() const;
  const std::vector<LostTask>& lost() const { return lost_; }

 private:
  struct Entry {
    TaskPeer peer;
    bool is_present = false;
    std::string reason;
  };
  void note_lost(const TaskPeer& who, const std::string& reason);

  std::map<std::pair<std::string, int>, Entry> tasks_;
  std::vector<LostTask> lost_;
};

}  // namespace trireme::membership
