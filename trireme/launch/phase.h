// What a rank is doing: told by heartbeats and kept where its launcher finds it (phase_page.h), so
// that a verdict can say where a rank was that is lost, or that the others wait for.
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

// The newest operation that all ranks take part in.
struct CollectiveAt {
  int64_t number = 0;     // In its step, from 1; 0: there was none yet.
  bool inside = false;    // It is under way.
  bool waits = false;     // For the others, as far as its carrier tells waiting from working.
  std::string operation;  // "all_reduce", "gradients"
  int64_t bytes = 0;      // Of this rank's tensor; 0: not known.
  bool operator==(const CollectiveAt&) const = default;
  std::string describe() const;  // "collective 2: all_reduce of 12.3 KB"
};

struct PhaseAt {
  Phase phase = Phase::starting;
  int64_t step =
      -1;  // Counted from 1: the step under way, or the last finished one. Below 1: none yet.
  CollectiveAt collective = {};
  bool operator==(const PhaseAt&) const = default;
  std::string brief() const;     // Without the collective.
  std::string describe() const;  // "backward of step 40", "exchange of step 40 (collective 2:
                                 // all_reduce of 12.3 KB)", "starting"
};

// What a replica does of itself in a step, without waiting and evaluation.
inline constexpr Phase kWork[] = {Phase::data,      Phase::forward,   Phase::backward,
                                  Phase::exchange,  Phase::optimizer, Phase::callbacks,
                                  Phase::checkpoint};

// Where the time of the steps so far went, on this rank. Seconds; they only grow.
struct PhaseTimes {
  int64_t steps = 0;                      // Finished; what follows are sums over them.
  std::array<double, kPhases> seconds{};  // By phase, without waiting.
  double waiting = 0;                     // For others, in collectives.
  double squares = 0;                     // Of each step's work.
  double of(Phase phase) const { return seconds[static_cast<size_t>(phase)]; }
  double work() const {
    double sum = 0;
    for (const Phase phase : kWork) sum += of(phase);
    return sum;
  }
};

struct PhaseNow {
  PhaseAt at;
  std::chrono::steady_clock::time_point since;  // It has been there.
  PhaseTimes times;
  // The step whose checkpoint it writes, in the background too. Not told by heartbeats.
  std::optional<int64_t> saving = {};
};

}  // namespace trireme
