// The words of the grammar of faults, and what they stand for.
#pragma once
#include <trireme/launch/phase.h>
#include <array>
#include <string_view>

namespace trireme::faults {

// In the order of FaultKind.
inline constexpr std::array<std::string_view, 7> kKinds{"kill", "stop",      "slow",  "corrupt",
                                                        "drop", "disk-full", "random"};

struct Place {
  std::string_view name;
  Phase phase;
};
// In the order in which a step passes them; the end is behind the last one. The collective is the
// phase that heartbeats call exchange.
inline constexpr std::array<Place, 7> kPlaces = {{{"data", Phase::data},
                                                  {"forward", Phase::forward},
                                                  {"backward", Phase::backward},
                                                  {"collective", Phase::exchange},
                                                  {"update", Phase::update},
                                                  {"checkpoint", Phase::checkpoint},
                                                  {"end", Phase::idle}}};
// Where a slow rank loses its time.
inline constexpr std::array<Place, 4> kSlowParts = {{{"compute", Phase::forward},
                                                     {"data", Phase::data},
                                                     {"collective", Phase::exchange},
                                                     {"checkpoint", Phase::checkpoint}}};

template <size_t n>
constexpr std::array<std::string_view, n> names_of(const std::array<Place, n>& places) {
  std::array<std::string_view, n> names;
  for (size_t i = 0; i < n; ++i) names[i] = places[i].name;
  return names;
}

}  // namespace trireme::faults
