// The roles of a job and their tasks. Pure.
//
// A job has workers, which train together, and may have side tasks: tasks of other roles, such as
// parameter servers and an evaluator. A side task is a process of the job, but no worker: it has
// no rank, and the number of workers does not count it.
#pragma once
#include <trireme/base/json.h>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace trireme::membership {

inline const std::string kWorkerRole = "worker";
// The other roles that Trireme knows, by their names in Kubeflow's TFJob and in TensorFlow. The
// chief is worker 0. The scheduler, of DMLC, hosts the coordinator and does nothing else.
inline const std::string kChiefRole = "chief", kServerRole = "ps", kEvaluatorRole = "evaluator",
                         kSchedulerRole = "scheduler";
// Side task n has the number kFirstSideTask + n among the processes of a job. Workers have smaller
// numbers.
inline constexpr int kFirstSideTask = 1 << 20;
// A command from outside the job has this number where a process has its own. As with those of
// side tasks, a new generation keeps the values that it has set.
inline constexpr int kOperator = std::numeric_limits<int>::max();

// One process's part in the job. Its replacement has the same task.
struct Task {
  std::string role = kWorkerRole;
  int index = 0;             // 0 to the role's count - 1.
  std::string name() const;  // "ps 0"
  // "ps 0 (host b)", or "ps 0" while the host is unknown.
  std::string name(const std::string& host) const;
  bool operator==(const Task&) const = default;
};

// The consequence when a task is lost.
enum class OnLoss {
  end_generation,  // As for a worker: the job ends, or the generation of an elastic job.
  tell,            // The others are told, and the job continues.
  replace,         // The others are told, and another process gets the task.
  // The same, and a task that fails for good or again and again is only told.
  replace_or_tell,
};
// "end", "tell", "replace" or "replace_or_tell"
std::string to_string(OnLoss on_loss);

// The facts that the tasks of a role have in common with tasks of other roles. Tasks of one role
// always have all their facts in common.
struct Agreement {
  std::vector<std::string> facts;  // Only facts that both sides give are compared.
  std::vector<std::string> with;   // The names of the other roles.
};

struct Role {
  std::string name;
  int count = 1;
  OnLoss on_loss = OnLoss::end_generation;
  std::vector<Agreement> must_agree = {};
  // The programme and its arguments, if the role has one of its own; empty: the job's.
  std::vector<std::string> command = {};
  // Its tasks are sure to join the job. At the end their launcher does not ask one that still
  // starts to end: it hears of the end when it joins, and can do its last work.
  bool always_joins = false;
};

// Parses NAME=COUNT or NAME=COUNT:LOSS, where LOSS is a name of OnLoss; without it, a role has the
// rule of its name (below). `where` names the option in messages. Throws
// Error(invalid_argument).
Role parse_role(const std::string& text, const std::string& where);
// Parses ROLE,ROLE:FACT,FACT and adds to these roles that their tasks have these facts in common
// (World::set_terms). A job's workers are the role `worker`. Throws Error(invalid_argument) if the
// text is malformed, or if it names fewer than two roles, or none of `roles`.
void add_agreement(std::vector<Role>& roles, const std::string& text, const std::string& where);
// A role `ps` is replaced, `evaluator` is told, and every other one ends the generation.
OnLoss usual_on_loss(const std::string& role);

// The side roles of a job, checked. The tasks are numbered in the order of the roles.
class Roles {
 public:
  Roles() = default;  // A job of workers only.
  // Throws Error(invalid_argument) naming the role and the value: an empty or malformed name, a
  // name that occurs twice or is `worker`, a count below 1, an agreement with an unknown role.
  explicit Roles(std::vector<Role> roles);

  bool empty() const { return roles_.empty(); }
  int count() const;  // The number of side tasks.
  const std::vector<Role>& all() const { return roles_; }
  const Role* find(const std::string& name) const;  // Null if the job has no such role.
  Task task_of(int number) const;                   // 0 to count() - 1.
  const Role& role_of(int number) const { return *find(task_of(number).role); }
  // The number of a task; empty if the job has no such task.
  std::optional<int> number_of(const Task& task) const;
  std::string describe() const;  // "2 ps and 1 evaluator"
  // The numbers of the tasks on one node: each role is spread evenly, in order, as workers are.
  std::vector<int> on_node(int nodes, int node) const;

  Json to_json() const;
  static Roles from_json(const Json& text);  // Throws nlohmann's errors if `text` is no Roles.

 private:
  std::vector<Role> roles_;
};

struct LocalWorkers {
  int first = 0;
  int count = 0;
};
// Returns the workers of one node. Each node gets workers / nodes of them, in order; the first
// nodes get one more if that does not divide evenly.
LocalWorkers local_workers_of(int workers, int nodes, int node);

}  // namespace trireme::membership
