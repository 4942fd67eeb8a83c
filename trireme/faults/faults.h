// The grammar of faults that are injected into a run (`trireme train --inject`), and the rules for
// where a fault is due. Pure.
//
//   kill:rank=2@step=40; stop:rank=1@step=60,for=3s; slow:rank=0,forward=20ms;
//   corrupt:rank=1,exchange@step=50; drop:link=0-1@step=80; disk-full@step=90;
//   random:seed=7,faults=5,steps=200
//
// A fault is KIND[:WHAT,...][@WHEN,...]. Its words may stand in any order on either side of the @.
// The table is in docs/faults.md.
#pragma once
#include <trireme/base/deadline.h>
#include <trireme/watch/phase.h>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace trireme {

// The environment of a programme of one's own in which faults strike (`trireme launch --inject`):
// the faults, and the folder of their marks.
inline constexpr const char* kInjectVariable = "TRIREME_INJECT";
inline constexpr const char* kInjectMarksVariable = "TRIREME_INJECT_MARKS";

enum class FaultKind { kill, stop, slow, corrupt, drop, disk_full, random };
std::string_view to_string(FaultKind kind);

struct Fault {
  FaultKind kind = FaultKind::kill;
  int rank = 0;      // The rank that it strikes; drop: one end of the link.
  int peer = -1;     // drop: the other end.
  int64_t step = 1;  // Steps count from 1. slow: also every later step.
  Phase phase = Phase::backward;
  Milliseconds duration{0};  // stop: time until it continues, 0: never. slow: for each step.
  int percent = 100;         // slow: the share of the rank's steps in which it is slow.
  // Options of random: the number of faults in steps 2 to `steps`, and their kinds.
  uint64_t seed = 1;
  int count = 1;
  int64_t steps = 0;
  std::vector<FaultKind> kinds;

  // The fault as text, such as "kill:rank=2@step=40,phase=backward". parse_faults() reads it back
  // without a change.
  std::string text() const;
};

// "none" and an empty text give no faults. Throws Error(invalid_argument) that names the fault by
// its number and text, the word, its value, and the values that are allowed.
std::vector<Fault> parse_faults(std::string_view text);
std::string to_text(const std::vector<Fault>& faults);
// Returns the faults of a run with `world_size` replicas. Each `random` is replaced by the
// faults that it draws, which depend only on its seed and the world size. Throws
// Error(invalid_argument) that names a rank or step that this run does not have. `steps` is the
// run's number of steps; 0: unknown.
std::vector<Fault> schedule_faults(const std::vector<Fault>& faults, int world_size,
                                   int64_t steps = 0);

// Returns true if `fault` strikes a replica that enters `phase` of `step`. For the phases
// checkpoint and idle (the end of a run), `step` counts the steps that are complete. A rank may
// skip a phase (a replica without samples has no backward), so a fault strikes at its phase or at
// the next phase of its step. A fault at the checkpoint strikes at the first checkpoint from its
// step on, and a fault at the end strikes at the end of a run with that many steps or more.
bool is_due(const Fault& fault, int rank, Phase phase, int64_t step);

}  // namespace trireme
