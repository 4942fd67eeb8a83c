#include <fmt/format.h>
#include <trireme/plan/consistency_change.h>

namespace trireme::plan {

Json ConsistencyRequest::to_json() const {
  return {{"id", id}, {"options", plan::to_json(options)}};
}

ConsistencyRequest ConsistencyRequest::from_json(const Json& json) {
  return {json.at("id").get<std::string>(), consistency_in(json.at("options"))};
}

Json ConsistencyAnswer::to_json() const {
  return {{"id", id}, {"before", plan::to_json(before)}, {"refused", refused}, {"remedy", remedy}};
}

ConsistencyAnswer ConsistencyAnswer::from_json(const Json& json) {
  return {json.at("id").get<std::string>(), consistency_in(json.at("before")),
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
