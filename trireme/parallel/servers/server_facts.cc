#include <trireme/parallel/servers/parameter_server.h>
#include <algorithm>
#include <string>
#include <utility>

namespace trireme {

Json ParameterServerFacts::to_json() const {
  int64_t most = 0, sum = 0, count = 0;
  Json histogram = Json::object();
  for (const auto& [updates_between, number] : staleness) {
    most = std::max(most, updates_between);
    sum += updates_between * number;
    count += number;
    histogram[std::to_string(updates_between)] = number;
  }
  return {{"pushes", pushes},
          {"late_pushes", late_pushes},
          {"repeated_pushes", repeated_pushes},
          {"pulls", pulls},
          {"unchanged_pulls", unchanged_pulls},
          {"updates", updates},
          {"failovers", failovers},
          {"staleness",
           {{"max", most},
            {"mean", count > 0 ? static_cast<double>(sum) / static_cast<double>(count) : 0.0},
            {"histogram", std::move(histogram)}}}};
}

ParameterServerFacts ParameterServerFacts::from_json(const Json& json) {
  ParameterServerFacts facts{json.at("pushes"),          json.at("late_pushes"),
                             json.at("repeated_pushes"), json.at("pulls"),
                             json.at("unchanged_pulls"), json.at("updates"),
                             json.at("failovers")};
  for (const auto& [updates_between, number] : json.at("staleness").at("histogram").items())
    facts.staleness[std::stoll(updates_between)] = number.get<int64_t>();
  return facts;
}

}  // namespace trireme
