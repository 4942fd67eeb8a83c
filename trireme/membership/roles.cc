#include <trireme/membership/roles.h>

#include <fmt/format.h>
#include <trireme/base/error.h>
#include <trireme/membership/protocol.h>
#include <algorithm>
#include <array>
#include <charconv>
#include <set>

namespace trireme::membership {
namespace {

constexpr int kMostOfARole = 1 << 16;

[[noreturn]] void refuse_role(const std::string& what, std::string_view remedy) {
  throw Error(ErrorCode::invalid_argument, "membership", what, remedy);
}

bool is_role_name(const std::string& name) {
  return !name.empty() && std::ranges::all_of(name, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           c == '_' || c == '-';
  });
}

OnLoss on_loss_from(const std::string& text, const std::string& where) {
  for (const OnLoss each :
       {OnLoss::end_generation, OnLoss::tell, OnLoss::replace, OnLoss::replace_or_tell})
    if (to_string(each) == text) return each;
  refuse_role(fmt::format("{}: '{}' is not a rule for a lost task", where, text),
              "end, tell, replace or replace_or_tell");
}

void check_role(const Role& role) {
  if (!is_role_name(role.name))
    refuse_role(fmt::format("the name '{}' of a role: it has letters, digits, _ and - only, and "
                            "at least one of them",
                            role.name),
                "a name such as ps");
  if (role.name == kWorkerRole)
    refuse_role("the role 'worker' is declared, which each job has already",
                "--workers N, and other names for other roles");
  if (role.count < 1)
    refuse_role(
        fmt::format("the role '{}' has {} tasks; a role has at least 1", role.name, role.count),
        fmt::format("{}=1 or more, or leave the role out", role.name));
  if (role.count > kMostOfARole)
    refuse_role(fmt::format("the role '{}' has {} tasks; a role has at most {}", role.name,
                            role.count, kMostOfARole),
                fmt::format("{}={} or fewer", role.name, kMostOfARole));
}

}  // namespace

std::string Task::name() const { return fmt::format("{} {}", role, index); }
std::string Task::name(const std::string& host) const {
  return host.empty() ? name() : fmt::format("{} (host {})", name(), host);
}

std::string to_string(OnLoss on_loss) {
  static constexpr std::array kNames{"end", "tell", "replace", "replace_or_tell"};
  return kNames[static_cast<size_t>(on_loss)];
}

OnLoss usual_on_loss(const std::string& role) {
  if (role == kServerRole) return OnLoss::replace;
  return role == kEvaluatorRole ? OnLoss::tell : OnLoss::end_generation;
}

Role parse_role(const std::string& text, const std::string& where) {
  const size_t equals = text.find('='), colon = text.find(':', equals);
  const std::string name = text.substr(0, equals);
  Role role{.name = name, .count = 0, .on_loss = usual_on_loss(name)};
  const size_t count_ends = std::min(colon, text.size());
  const char* const end = text.data() + count_ends;
  const bool has_count = equals != std::string::npos &&
                         std::from_chars(text.data() + equals + 1, end, role.count).ptr == end &&
                         equals + 1 < count_ends;
  if (!has_count)
    refuse_role(fmt::format("{} is '{}'; expected: NAME=COUNT or NAME=COUNT:LOSS", where, text),
                "for example ps=2:replace; LOSS is end, tell, replace or replace_or_tell");
  if (colon != std::string::npos)
    role.on_loss = on_loss_from(text.substr(colon + 1), fmt::format("{} {}", where, text));
  check_role(role);
  return role;
}

void add_agreement(std::vector<Role>& roles, const std::string& text, const std::string& where) {
  const auto parts_between = [&text](size_t from, size_t to) {
    std::vector<std::string> parts;
    for (size_t comma = from; from < to; from = comma + 1) {
      comma = std::min(text.find(',', from), to);
      if (comma > from) parts.push_back(text.substr(from, comma - from));
    }
    return parts;
  };
  const size_t colon = std::min(text.find(':'), text.size());
  const std::vector<std::string> all = parts_between(0, colon);
  const std::set<std::string> names(all.begin(), all.end());
  const std::vector<std::string> facts = parts_between(colon + 1, text.size());
  const auto is_named = [&names](const Role& role) { return names.contains(role.name); };
  if (names.size() < 2 || facts.empty() || std::ranges::none_of(roles, is_named))
    refuse_role(fmt::format("{} is '{}'; expected: ROLE,ROLE:FACT,FACT with a side role of this "
                            "job",
                            where, text),
                "for example ps,worker:model");
  for (Role& role : roles) {
    if (!is_named(role)) continue;
    Agreement agreement{facts, {names.begin(), names.end()}};
    std::erase(agreement.with, role.name);
    role.must_agree.push_back(std::move(agreement));
  }
}

Roles::Roles(std::vector<Role> roles) : roles_(std::move(roles)) {
  std::set<std::string> names;
  for (const Role& role : roles_) {
    check_role(role);
    if (!names.insert(role.name).second)
      refuse_role(fmt::format("the role '{}' is declared twice", role.name),
                  "one declaration with the number of all its tasks");
  }
  for (const Role& role : roles_)
    for (const Agreement& agreement : role.must_agree)
      for (const std::string& other : agreement.with)
        if (other != kWorkerRole && !names.contains(other))
          refuse_role(fmt::format("the role '{}' must agree with the role '{}', which the job "
                                  "does not have",
                                  role.name, other),
                      "the name of a role of the job");
}

int Roles::count() const {
  int count = 0;
  for (const Role& role : roles_) count += role.count;
  return count;
}

const Role* Roles::find(const std::string& name) const {
  const auto found = std::ranges::find(roles_, name, &Role::name);
  return found == roles_.end() ? nullptr : &*found;
}

Task Roles::task_of(int number) const {
  int index = number;
  for (const Role& role : roles_) {
    if (index >= 0 && index < role.count) return {role.name, index};
    index -= role.count;
  }
  refuse_role(fmt::format("side task {} is out of range: the job has {}", number, count()),
              "a number below that");
}

std::optional<int> Roles::number_of(const Task& task) const {
  int first = 0;
  for (const Role& role : roles_) {
    if (role.name == task.role)
      return task.index >= 0 && task.index < role.count ? std::optional(first + task.index)
                                                        : std::nullopt;
    first += role.count;
  }
  return std::nullopt;
}

std::string Roles::describe() const {
  std::vector<std::string> parts;
  for (const Role& role : roles_) parts.push_back(fmt::format("{} {}", role.count, role.name));
  return enumerate(parts);
}

std::vector<int> Roles::on_node(int nodes, int node) const {
  std::vector<int> here;
  int first = 0;
  for (const Role& role : roles_) {
    const LocalWorkers part = local_workers_of(role.count, nodes, node);
    for (int i = 0; i < part.count; ++i) here.push_back(first + part.first + i);
    first += role.count;
  }
  return here;
}

Json Roles::to_json() const {
  Json text = Json::array();
  for (const Role& role : roles_) {
    Json agreements = Json::array();
    for (const Agreement& each : role.must_agree) agreements.push_back({each.facts, each.with});
    text.push_back({role.name, role.count, to_string(role.on_loss), std::move(agreements)});
  }
  return text;
}

Roles Roles::from_json(const Json& text) {
  std::vector<Role> roles;
  for (const Json& each : text) {
    Role role{
        .name = each.at(0), .count = each.at(1), .on_loss = on_loss_from(each.at(2), "a message")};
    for (const Json& agreement : each.at(3))
      role.must_agree.push_back({agreement.at(0), agreement.at(1)});
    roles.push_back(std::move(role));
  }
  return Roles(std::move(roles));
}

LocalWorkers local_workers_of(int workers, int nodes, int node) {
  const int each = workers / nodes;
  const int nodes_with_one_more = workers % nodes;
  return {.first = node * each + std::min(node, nodes_with_one_more),
          .count = each + (node < nodes_with_one_more ? 1 : 0)};
}

}  // namespace trireme::membership
