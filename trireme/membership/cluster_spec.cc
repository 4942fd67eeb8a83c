#include <fmt/format.h>
#include <fmt/ranges.h>
#include <trireme/base/error.h>
#include <trireme/base/json.h>
#include <trireme/membership/cluster_spec.h>
#include <algorithm>
#include <optional>
#include <set>

namespace trireme::membership {
namespace {

const std::vector<std::string> kRoles = {kChiefRole, kWorkerRole, kServerRole, kEvaluatorRole};

[[noreturn]] void refuse_tf_config(const std::string& what, const std::string& remedy) {
  throw Error(ErrorCode::invalid_argument, "membership", "environment variable TF_CONFIG: " + what,
              remedy);
}

std::string role_of(const std::string& name) {
  if (name == "master") return kChiefRole;
  if (std::ranges::find(kRoles, name) != kRoles.end()) return name;
  refuse_tf_config(fmt::format("unknown role '{}'", name),
                   fmt::format("one of {}", fmt::join(kRoles, ", ")));
}

const Json& member_of(const Json& object, const char* name, const char* where,
                      Json::value_t type) {
  const auto found = object.find(name);
  if (found == object.end())
    refuse_tf_config(fmt::format("{} has no \"{}\"", where, name),
                     R"({"cluster": {"worker": ["host:2222"]}, "task": {"type": "worker", )"
                     R"("index": 0}})");
  if (found->type() != type &&
      !(type == Json::value_t::number_unsigned && found->type() == Json::value_t::number_integer))
    refuse_tf_config(fmt::format("\"{}\" in {} is {}", name, where, found->dump()),
                     fmt::format("a {}", Json(type).type_name()));
  return *found;
}

net::Endpoint address_of(const Json& value, const Task& of) {
  if (value.is_string()) {
    try {
      if (net::Endpoint address = net::parse_endpoint(value.get<std::string>()); address.port > 0)
        return address;
    } catch (const Error&) {
    }
  }
  refuse_tf_config(
      fmt::format("the address of {} is {}, which is not HOST:PORT", of.name(), value.dump()),
      "for example \"10.0.0.1:2222\"");
}

void read_role(const Json& list, const std::string& role, std::set<std::string>& known,
               std::vector<net::Endpoint>& addresses) {
  if (!list.is_array())
    refuse_tf_config(fmt::format("the addresses of role {} are {}", role, list.dump()),
                     "a list, such as [\"host:2222\"]");
  for (const Json& each : list) {
    const Task task{role, static_cast<int>(addresses.size())};
    addresses.push_back(address_of(each, task));
    if (!known.insert(addresses.back().describe()).second)
      refuse_tf_config(fmt::format("the address {} of {} belongs to another task too",
                                   addresses.back().describe(), task.name()),
                       "an address of its own for each task");
  }
}

Task task_in(const Json& json) {
  const Json& task = member_of(json, "task", "it", Json::value_t::object);
  Task own;
  own.role =
      role_of(member_of(task, "type", "\"task\"", Json::value_t::string).get<std::string>());
  // A chief or an evaluator needs no index.
  if (task.contains("index")) {
    const Json& index = member_of(task, "index", "\"task\"", Json::value_t::number_unsigned);
    const auto value = index.get<int64_t>();
    own.index = value < 0 || value > kFirstSideTask ? -1 : static_cast<int>(value);
  } else if (own.role == kWorkerRole || own.role == kServerRole) {
    member_of(task, "index", "\"task\"", Json::value_t::number_unsigned);
  }
  return own;
}

void check_task(const ClusterSpec& spec) {
  const int count = spec.count(spec.task.role);
  const bool is_unlisted_evaluator = spec.task.role == kEvaluatorRole && count == 0;
  const int limit = is_unlisted_evaluator ? 1 : count;
  if (spec.task.index >= 0 && spec.task.index < limit) return;
  refuse_tf_config(fmt::format("the task is {}, but the cluster has {} of this role",
                               spec.task.name(), count == 0 ? "none" : std::to_string(count)),
                   limit > 0 ? fmt::format("an index from 0 to {}", limit - 1)
                             : "the addresses of the role in \"cluster\"");
}

}  // namespace

int ClusterSpec::count(const std::string& role) const {
  const auto found = addresses.find(role);
  return found == addresses.end() ? 0 : static_cast<int>(found->second.size());
}

int ClusterSpec::worker_number(const Task& of) const {
  if (of.role == kChiefRole) return of.index;
  return of.role == kWorkerRole ? count(kChiefRole) + of.index : -1;
}

const net::Endpoint& ClusterSpec::address(const Task& of) const {
  return addresses.at(of.role).at(static_cast<size_t>(of.index));
}

const net::Endpoint& ClusterSpec::meeting_place() const {
  return address({count(kChiefRole) > 0 ? kChiefRole : kWorkerRole, 0});
}

std::vector<int> ClusterSpec::workers_beside(const Task& of) const {
  std::vector<int> beside;
  for (const std::string& role : {kChiefRole, kWorkerRole})
    for (int i = 0; i < count(role); ++i)
      if (address({role, i}).host == address(of).host) beside.push_back(worker_number({role, i}));
  return beside;
}

ClusterSpec parse_tf_config(const std::string& text) {
  Json json;
  try {
    json = Json::parse(text);
  } catch (const Json::parse_error& error) {
    refuse_tf_config(fmt::format("it is no JSON, from byte {} of '{}'", error.byte, text),
                     R"({"cluster": {...}, "task": {"type": "worker", "index": 0}})");
  }
  if (!json.is_object()) refuse_tf_config("it is " + json.dump(), "a JSON object");
  ClusterSpec spec;
  std::set<std::string> known;
  for (const auto& [name, list] : member_of(json, "cluster", "it", Json::value_t::object).items())
    read_role(list, role_of(name), known, spec.addresses[role_of(name)]);
  if (spec.count(kChiefRole) > 1)
    refuse_tf_config(fmt::format("the cluster has {} chiefs", spec.count(kChiefRole)),
                     "one chief");
  if (spec.count(kEvaluatorRole) > 1)
    refuse_tf_config(fmt::format("the cluster has {} evaluators, and they would write one curve",
                                 spec.count(kEvaluatorRole)),
                     "one evaluator");
  if (spec.workers() == 0)
    refuse_tf_config("the cluster has neither a chief nor a worker", "at least one of them");
  spec.task = task_in(json);
  check_task(spec);
  return spec;
}

}  // namespace trireme::membership
