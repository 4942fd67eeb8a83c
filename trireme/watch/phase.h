// The activity of a rank: its phase, step and collective. Heartbeats carry it, and a page keeps it
// for the launcher (phase_page.h). So a verdict can name the place of a lost rank, or of one that
// the others wait for.
#pragma once
#include <array>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace trireme {

enum class Phase {
  starting,
  connecting,
  data,
  forward,
  backward,
  exchange,
  optimizer,
  callbacks,
  evaluate,
  checkpoint,
  idle,
  leaving
};
inline constexpr size_t kPhases = static_cast<size_t>(Phase::leaving) + 1;
std::string_view to_string(Phase phase);
Phase phase_from_string(std::string_view name);

// The newest collective of a rank.
struct CollectiveAt {
  int64_t number = 0;     // Its number in the step, from 1; 0: none has begun yet.
  bool inside = false;    // The rank is in the collective.
  bool waits = false;     // The rank waits for the others, as far as the backend can tell.
  std::string operation;  // "all_reduce", "gradients"
  int64_t bytes = 0;      // The bytes of this rank's tensor; 0: unknown.
  bool operator==(const CollectiveAt&) const = default;
  std::string describe() const;  // "collective 2: all_reduce of 12.3 KB"
};

struct PhaseAt {
  Phase phase = Phase::starting;
  // The current step, or the last finished one, counted from 1. Below 1: no step has begun.
  int64_t step = -1;
  CollectiveAt collective = {};
  bool operator==(const PhaseAt&) const = default;
  std::string brief() const;  // The description without the collective.
  // "starting", "backward of step 40",
  // "exchange of step 40 (collective 2: all_reduce of 12.3 KB)"
  std::string describe() const;
};

// The phases in which a replica itself works on a step: not waiting, not evaluation.
inline constexpr Phase kWork[] = {Phase::data,      Phase::forward,   Phase::backward,
                                  Phase::exchange,  Phase::optimizer, Phase::callbacks,
                                  Phase::checkpoint};

// The time that all steps so far took on this rank, by phase, in seconds. The values only grow.
struct PhaseTimes {
  int64_t steps = 0;  // The finished steps. The other values are sums over them.
  std::array<double, kPhases> seconds{};  // The time in each phase, without waiting.
  double waiting = 0;                     // The time in collectives, waiting for other ranks.
  double squares = 0;                     // The sum of the squares of each step's work.
  double of(Phase phase) const { return seconds[static_cast<size_t>(phase)]; }
  double work() const {
    double sum = 0;
    for (const Phase phase : kWork) sum += of(phase);
    return sum;
  }
};

struct PhaseNow {
  PhaseAt at;
  std::chrono::steady_clock::time_point since;  // When the rank came there.
  PhaseTimes times;
  // The step whose checkpoint the rank is writing, maybe in the background. Not in heartbeats.
  std::optional<int64_t> saving = {};
};

}  // namespace trireme
