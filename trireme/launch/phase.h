// What a rank is doing: carried by heartbeats, so that a verdict can say where a lost rank was.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

namespace trireme {

enum class Phase { starting, connecting, data, forward, backward, exchange, update, evaluate, checkpoint, idle, leaving };
std::string_view to_string(Phase phase);
Phase phase_from_string(std::string_view name);

struct PhaseAt {
  Phase phase = Phase::starting;
  int64_t step = -1;             // Counted from 1: the step under way, or the last finished one. Below 1: none yet.
  std::string describe() const;  // "backward of step 40", "starting"
};

}  // namespace trireme
