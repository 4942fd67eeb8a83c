#include <fmt/format.h>
#include <trireme/plan/consistency_change.h>

namespace trireme::plan {
namespace {

Json json_of(const ConsistencyOptions& options) {
  return {{"consistency", to_string(options.consistency)},
          {"staleness", options.staleness},
          {"backup_workers", options.backup_workers}};
}

ConsistencyOptions consistency_from(const Json& json) {
  return {consistency_from_string(json.at("consistency").get<std::string>()),
          json.at("staleness").get<int>(), json.at("backup_workers").get<int>()};
}

}  // namespace

Json ConsistencyRequest::to_json() const {
  Json json = json_of(options);
  json["id"] = id;
  return json;
}

ConsistencyRequest ConsistencyRequest::from_json(const Json& json) {
  return {json.at("id").get<std::string>(), consistency_from(json)};
}

Json ConsistencyAnswer::to_json() const {
  return {{"id", id}, {"before", json_of(before)}, {"refused", refused}, {"remedy", remedy}};
}

ConsistencyAnswer ConsistencyAnswer::from_json(const Json& json) {
  return {json.at("id").get<std::string>(), consistency_from(json.at("before")),
          json.at("refused").get<std::string>(), json.at("remedy").get<std::string>()};
}

std::string describe(const ConsistencyOptions& options) {
  const auto counted = [](int count, const char* what) {
    return fmt::format("{} {}{}", count, what, count == 1 ? "" : "s");
  };
  std::string text(to_string(options.consistency));
  if (options.consistency == Consistency::stale)
    text += " with a bound of " + counted(options.staleness, "step");
  if (options.backup_workers > 0)
    text += " with " + counted(options.backup_workers, "backup worker");
  return text;
}

}  // namespace trireme::plan
