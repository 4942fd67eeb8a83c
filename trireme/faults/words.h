// The words of the grammar of faults and their meanings. Phases have the names that heartbeats and
// messages use (watch/phase.h).
#pragma once
#include <trireme/watch/phase.h>
#include <array>
#include <string_view>

namespace trireme::faults {

// The kinds in the order of FaultKind.
inline constexpr std::array<std::string_view, 7> kKinds{"kill", "stop",      "slow",  "corrupt",
                                                        "drop", "disk-full", "random"};

// The phases at which a fault can strike, in the order in which a step passes them. A run is idle
// after its last step.
inline constexpr std::array kPlaces = {Phase::data,     Phase::forward,   Phase::backward,
                                       Phase::exchange, Phase::optimizer, Phase::checkpoint,
                                       Phase::idle};
// The phases in which a slow rank can be delayed.
inline constexpr std::array kSlowParts = {Phase::forward, Phase::data, Phase::exchange,
                                          Phase::checkpoint};

// Words that earlier versions had for phases.
struct OldWord {
  std::string_view word;
  Phase phase;
};
inline constexpr std::array<OldWord, 4> kOldWords = {{{"compute", Phase::forward},
                                                      {"collective", Phase::exchange},
                                                      {"update", Phase::optimizer},
                                                      {"end", Phase::idle}}};

template <size_t n>
std::array<std::string_view, n> names_of(const std::array<Phase, n>& phases) {
  std::array<std::string_view, n> names;
  for (size_t i = 0; i < n; ++i) names[i] = to_string(phases[i]);
  return names;
}

}  // namespace trireme::faults
