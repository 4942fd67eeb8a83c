#include <trireme/run/cache_choice.h>

#include <trireme/data/kinds/mixture_options.h>
#include <trireme/data/kinds/mixture_set.h>
#include <algorithm>

namespace trireme {

bool wants_cache_choice(const Config& config) {
  return config.data.cache == "auto" ||
         std::ranges::any_of(data::sets_of(config.data),
                             [](const data::DataOptions& set) { return set.cache == "auto"; });
}

void apply(const CacheChoice& choice, Config& config) {
  config.data.stages = choice.stages;
  config.data.sources = data::sources_with(config.data.sources, choice.of_sources);
  config.data.cache = "stages";
}

Json to_json(const CacheChoice& choice) {
  Json of_sources = Json::array();
  for (const auto& stages : choice.of_sources)
    of_sources.push_back(stages ? Json(*stages) : Json());
  return {{"stages", choice.stages}, {"of_sources", of_sources}, {"line", choice.line}};
}

std::optional<CacheChoice> cache_choice_from(const Json& json) {
  const auto has = [&](const char* key) { return json.contains(key) && json[key].is_string(); };
  if (!json.is_object() || !has("stages") || !has("line") || !json.contains("of_sources") ||
      !json["of_sources"].is_array())
    return std::nullopt;
  CacheChoice choice{json["stages"].get<std::string>(), {}, json["line"].get<std::string>()};
  for (const Json& stages : json["of_sources"]) {
    if (!stages.is_string() && !stages.is_null()) return std::nullopt;
    choice.of_sources.push_back(stages.is_null() ? std::nullopt
                                                 : std::optional(stages.get<std::string>()));
  }
  return choice;
}

}  // namespace trireme
