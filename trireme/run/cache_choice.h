// The choice of the places where a run keeps samples in memory (data.cache: auto), as a value. No
// torch. run/place_cache.h makes it.
#pragma once
#include <trireme/base/deadline.h>
#include <trireme/base/json.h>
#include <trireme/run/config.h>
#include <optional>
#include <string>
#include <vector>

namespace trireme {

// The longest that a process waits for the choice of another one, which loads a few samples; files
// on a slow server are fetched for them.
inline constexpr Milliseconds kPatienceForChoice{600'000};

// The choice for a configuration, without paths, which may be others on other hosts.
struct CacheChoice {
  std::string stages;  // data.stages from now on.
  // The stages of each source of a mixture from now on; nothing: those that it has.
  std::vector<std::optional<std::string>> of_sources;
  std::string line;  // For people.
};

// Whether data.cache is auto, also for a single source of a mixture.
bool wants_cache_choice(const Config& config);
// Sets data.stages and the entries of data.sources. data.cache is `stages` then, also in entries.
void apply(const CacheChoice& choice, Config& config);

// For other processes.
Json to_json(const CacheChoice& choice);
// Nothing: `json` is no choice.
std::optional<CacheChoice> cache_choice_from(const Json& json);

}  // namespace trireme
