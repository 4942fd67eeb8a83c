#include <fmt/format.h>
#include <fmt/ranges.h>

#include <trireme/base/error.h>
#include <trireme/base/hash.h>
#include <trireme/membership/cluster_spec.h>
#include <trireme/membership/foreign_launchers.h>
#include <trireme/membership/variables.h>
#include <algorithm>
#include <array>
#include <charconv>
#include <initializer_list>
#include <limits>
#include <numeric>
#include <utility>

namespace trireme::membership {
namespace {

[[noreturn]] void refuse_variable(const std::string& what, const std::string& remedy) {
  throw Error(ErrorCode::invalid_argument, "membership", what, remedy);
}

int number_in(const Environment& environment, const char* name, const char* present, int low,
              int high) {
  const int value = required(environment, name, present);
  require_range(name, value, low, high, fmt::format("it is set beside {}", present));
  return value;
}

// Side tasks of a job without a supervisor: something else replaces lost ones, or does not.
Roles side_roles(std::initializer_list<std::pair<std::string, int>> counts) {
  std::vector<Role> roles;
  for (const auto& [name, count] : counts)
    if (count > 0) roles.push_back({.name = name, .count = count, .on_loss = usual_on_loss(name)});
  return Roles(std::move(roles));
}

// ---- DMLC ----

int dmlc_number(const Environment& environment, const char* own, int count) {
  const bool has_own = environment.get(own).has_value();
  if (!has_own && !environment.get("DMLC_TASK_ID"))
    refuse_variable(fmt::format("DMLC_ROLE is set, but neither {} nor DMLC_TASK_ID: the process "
                                "does not know its number",
                                own),
                    fmt::format("{}=0 to {}", own, count - 1));
  return number_in(environment, has_own ? own : "DMLC_TASK_ID", "DMLC_ROLE", 0, count - 1);
}

// ---- Slurm ----

constexpr std::array kRolesOfSlurm{"TRIREME_PS", "TRIREME_EVALUATOR", "TRIREME_CHIEF"};

struct Range {
  int64_t first = 0, last = 0;
  size_t digits = 0;
};

[[noreturn]] void refuse_list(const std::string& list, const std::string& what) {
  refuse_variable(fmt::format("Slurm's list '{}' has {}", list, what),
                  "a list as Slurm writes it, such as node[1-3,7], or 2(x3),1");
}

int64_t number_of(std::string_view digits, int64_t least, const std::string& list) {
  int64_t value = -1;
  const char* const end = digits.data() + digits.size();
  const auto parsed = std::from_chars(digits.data(), end, value);
  if (parsed.ec != std::errc() || parsed.ptr != end || value < least)
    refuse_list(list, fmt::format("'{}', which is no number there", digits));
  return value;
}

Range range_of(const std::string& text, const std::string& list) {
  const size_t dash = text.find('-');
  const std::string_view all = text, first = all.substr(0, std::min(dash, text.size()));
  const int64_t from = number_of(first, 0, list);
  const int64_t to = dash == std::string::npos ? from : number_of(all.substr(dash + 1), 0, list);
  if (to < from || to - from > kMaxWorkers)
    refuse_list(list, fmt::format("'{}', which is no range", text));
  return {from, to, first.size()};
}

// Splits at commas outside of brackets.
std::vector<std::string> entries_of(const std::string& list) {
  std::vector<std::string> entries;
  std::string now;
  int depth = 0;
  for (const char c : list) {
    depth += c == '[' ? 1 : c == ']' ? -1 : 0;
    if (c == ',' && depth == 0)
      entries.push_back(std::exchange(now, {}));
    else
      now += c;
  }
  entries.push_back(now);
  return entries;
}

std::vector<std::string> expanded(const std::string& entry, const std::string& list) {
  const size_t open = entry.find('[');
  if (open == std::string::npos) return {entry};
  const size_t close = entry.find(']', open);
  if (close == std::string::npos) refuse_list(list, "an open bracket");
  std::vector<std::string> hosts;
  for (const std::string& text : entries_of(entry.substr(open + 1, close - open - 1))) {
    const Range range = range_of(text, list);
    for (int64_t number = range.first; number <= range.last; ++number)
      for (const std::string& rest : expanded(entry.substr(close + 1), list))
        hosts.push_back(
            fmt::format("{}{:0{}}{}", entry.substr(0, open), number, range.digits, rest));
  }
  return hosts;
}

// The tasks of this node, by number. Slurm lists them; without the list, nodes have tasks in
// order.
std::vector<int> tasks_here(const Environment& environment, const std::vector<int>& per_node,
                            int node) {
  const auto listed = environment.get("SLURM_GTIDS").value_or("");
  std::vector<int> here;
  if (!listed.empty()) {
    for (const std::string& entry : entries_of(listed))
      here.push_back(static_cast<int>(number_of(entry, 0, listed)));
    return here;
  }
  here.resize(static_cast<size_t>(per_node[static_cast<size_t>(node)]));
  std::iota(here.begin(), here.end(),
            std::accumulate(per_node.begin(), per_node.begin() + node, 0));
  return here;
}

// TRIREME_PS and TRIREME_EVALUATOR say how many of the tasks are no workers: the first tasks are
// workers, then come the servers, then the evaluator.
void take_roles_of_slurm(const Environment& environment, int task, const std::vector<int>& here,
                         Identity& identity) {
  const auto count = [&](const char* name, int most) {
    const int value = environment.get_int(name).value_or(0);
    require_range(name, value, 0, most,
                  fmt::format("the step has {} tasks, and at least one of them is a worker",
                              identity.workers));
    return value;
  };
  const int tasks = identity.workers;
  const int servers = count("TRIREME_PS", tasks - 1);
  const int evaluators = count("TRIREME_EVALUATOR", std::min(1, tasks - 1 - servers));
  identity.roles = side_roles({{kServerRole, servers}, {kEvaluatorRole, evaluators}});
  identity.workers = tasks - servers - evaluators;
  identity.worker = task < identity.workers ? task : -1;
  if (task >= identity.workers + servers)
    identity.task = {kEvaluatorRole, 0};
  else if (task >= identity.workers)
    identity.task = {kServerRole, task - identity.workers};
  identity.is_chief = count("TRIREME_CHIEF", 1) == 1 && task == 0;
  identity.local_workers = static_cast<int>(
      std::ranges::count_if(here, [&](int each) { return each < identity.workers; }));
  identity.local_worker = static_cast<int>(std::ranges::count_if(
      here, [&](int each) { return each < identity.workers && each < task; }));
  if (identity.worker < 0) {
    identity.local_worker = 0;
  } else if (!std::ranges::count(here, task)) {
    refuse_variable(fmt::format("SLURM_PROCID={} is not among the tasks of its node, {}", task,
                                fmt::join(here, ", ")),
                    "SLURM_GTIDS as srun sets it");
  }
}

}  // namespace

Identity from_tf_config(const Environment& environment) {
  const std::string text = *environment.get("TF_CONFIG");
  const ClusterSpec spec = parse_tf_config(text);
  Identity identity;
  identity.launcher = Launcher::tf_config;
  identity.is_chief = spec.task.role == kChiefRole;
  identity.workers = spec.workers();
  identity.worker = spec.worker_number(spec.task);
  if (identity.worker < 0) identity.task = spec.task;
  identity.roles = side_roles({{kServerRole, spec.count(kServerRole)},
                               {kEvaluatorRole, std::max(1, spec.count(kEvaluatorRole))}});
  identity.evaluator_is_unlisted = spec.count(kEvaluatorRole) == 0;
  const bool is_listed = spec.count(spec.task.role) > 0;
  const std::vector<int> beside = is_listed ? spec.workers_beside(spec.task) : std::vector<int>{};
  // An evaluator that the cluster does not name is where the workers are, or needs the token.
  identity.local_workers = is_listed ? static_cast<int>(beside.size()) : identity.workers;
  identity.local_worker =
      static_cast<int>(std::ranges::find(beside, identity.worker) - beside.begin());
  if (identity.worker < 0) identity.local_worker = 0;
  // A worker without side tasks that anybody named has nobody to meet.
  const bool is_alone = identity.workers == 1 && identity.worker == 0 &&
                        spec.count(kServerRole) + spec.count(kEvaluatorRole) == 0;
  if (!is_alone) identity.rendezvous = spec.meeting_place();
  identity.hosts_coordinator = !is_alone && identity.worker == 0;
  identity.job_id = fmt::format("tf-{}", spec.meeting_place().describe());
  return identity;
}

Identity from_dmlc(const Environment& environment) {
  const std::string role = *environment.get("DMLC_ROLE");
  Identity identity;
  identity.launcher = Launcher::dmlc;
  identity.workers = number_in(environment, "DMLC_NUM_WORKER", "DMLC_ROLE", 1, kMaxWorkers);
  const int servers = number_in(environment, "DMLC_NUM_SERVER", "DMLC_ROLE", 0, kMaxWorkers);
  const net::Endpoint root{required_host(environment, "DMLC_PS_ROOT_URI", "DMLC_ROLE"),
                           number_in(environment, "DMLC_PS_ROOT_PORT", "DMLC_ROLE", 1, 65535)};
  identity.roles = side_roles({{kServerRole, servers}, {kSchedulerRole, 1}});
  identity.rendezvous = root;
  identity.job_id = "dmlc-" + root.describe();
  const bool is_on_loopback =
      root.host == "localhost" || root.host == "::1" || root.host.starts_with("127.");
  if (role == "worker") {
    identity.worker = dmlc_number(environment, "DMLC_WORKER_ID", identity.workers);
  } else if (role == "server") {
    identity.worker = -1;
    identity.task = {kServerRole, dmlc_number(environment, "DMLC_SERVER_ID", servers)};
  } else if (role == kSchedulerRole) {
    identity.worker = -1;
    identity.task = {kSchedulerRole, 0};
    identity.hosts_coordinator = true;
  } else {
    refuse_variable(fmt::format("environment variable DMLC_ROLE='{}' is no role", role),
                    "worker, server or scheduler");
  }
  if (is_on_loopback) identity.local_workers = identity.workers;
  if (is_on_loopback && identity.worker > 0) identity.local_worker = identity.worker;
  return identity;
}

bool is_task_of_slurm(const Environment& environment) {
  return environment.get("SLURM_STEP_ID") && environment.get("SLURM_PROCID") &&
         environment.get("SLURM_STEP_NUM_TASKS").value_or("1") != "1";
}

Identity from_slurm(const Environment& environment) {
  constexpr const char* kPresent = "SLURM_STEP_ID";
  Identity identity;
  identity.launcher = Launcher::slurm;
  identity.workers = number_in(environment, "SLURM_STEP_NUM_TASKS", kPresent, 1, kMaxWorkers);
  const int task = number_in(environment, "SLURM_PROCID", kPresent, 0, identity.workers - 1);
  identity.worker = task;
  const auto hosts = hosts_of_slurm(required_text(environment, "SLURM_STEP_NODELIST", kPresent));
  const auto tasks =
      tasks_of_slurm(required_text(environment, "SLURM_STEP_TASKS_PER_NODE", kPresent));
  if (tasks.size() != hosts.size() ||
      std::accumulate(tasks.begin(), tasks.end(), 0) != identity.workers)
    refuse_variable(
        fmt::format("SLURM_STEP_TASKS_PER_NODE={} does not fit SLURM_STEP_NODELIST={} and "
                    "SLURM_STEP_NUM_TASKS={}",
                    *environment.get("SLURM_STEP_TASKS_PER_NODE"),
                    *environment.get("SLURM_STEP_NODELIST"), identity.workers),
        "the variables as srun sets them");
  const int node =
      number_in(environment, "SLURM_NODEID", kPresent, 0, static_cast<int>(hosts.size()) - 1);
  identity.local_workers = tasks[static_cast<size_t>(node)];
  identity.local_worker =
      number_in(environment, "SLURM_LOCALID", kPresent, 0, identity.local_workers - 1);
  if (std::ranges::any_of(kRolesOfSlurm,
                          [&](const char* name) { return environment.get(name).has_value(); }))
    take_roles_of_slurm(environment, task, tasks_here(environment, tasks, node), identity);
  identity.hosts_coordinator = identity.worker == 0;
  const int most = std::numeric_limits<int>::max();
  const int job = number_in(environment, "SLURM_JOB_ID", kPresent, 0, most),
            step = number_in(environment, "SLURM_STEP_ID", kPresent, 0, most);
  identity.job_id = fmt::format("slurm-{}.{}", job, step);
  constexpr uint64_t kFirstPort = 20000, kPorts = 10000;
  const auto usual = static_cast<int>(
      kFirstPort + mix64(static_cast<uint64_t>(job), static_cast<uint64_t>(step)) % kPorts);
  // Without one, a single worker would take itself for alone.
  if (hosts.size() > 1 || !identity.roles.empty())
    identity.rendezvous = {hosts.size() > 1 ? hosts.front() : "127.0.0.1",
                           environment.get_int("MASTER_PORT").value_or(usual)};
  return identity;
}

std::vector<std::string> hosts_of_slurm(const std::string& list) {
  std::vector<std::string> hosts;
  for (const std::string& entry : entries_of(list)) {
    const auto more = expanded(entry, list);
    hosts.insert(hosts.end(), more.begin(), more.end());
  }
  if (std::ranges::any_of(hosts, &std::string::empty)) refuse_list(list, "an empty name");
  return hosts;
}

std::vector<int> tasks_of_slurm(const std::string& list) {
  std::vector<int> tasks;
  const auto number = [&](const std::string& text) {
    const int64_t value = number_of(text, 1, list);
    if (value > kMaxWorkers) refuse_list(list, fmt::format("{}, which is too large", value));
    return static_cast<int>(value);
  };
  for (const std::string& entry : entries_of(list)) {
    const size_t open = entry.find("(x");
    const bool repeats = open != std::string::npos && entry.back() == ')';
    const int times = repeats ? number(entry.substr(open + 2, entry.size() - open - 3)) : 1;
    tasks.insert(tasks.end(), static_cast<size_t>(times), number(entry.substr(0, open)));
  }
  return tasks;
}

}  // namespace trireme::membership
