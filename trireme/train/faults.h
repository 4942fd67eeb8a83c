// Faults that a run is asked to suffer (`trireme train --inject`): their grammar, and which of them
// is due where. Pure; no torch.
//
//   kill:rank=2@step=40; stop:rank=1@step=60,for=3s; slow:rank=0,compute=20ms;
//   corrupt:rank=1,collective@step=50; drop:link=0-1@step=80; disk-full@step=90;
//   random:seed=7,faults=5,steps=200
//
// A fault is KIND[:WHAT,...][@WHEN,...]; its words may stand in any order on either side of the @.
// docs/faults.md has the table.
#pragma once
#include <trireme/base/deadline.h>
#include <trireme/launch/phase.h>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace trireme {

enum class FaultKind { kill, stop, slow, corrupt, drop, disk_full, random };
std::string_view to_string(FaultKind kind);

struct Fault {
  FaultKind kind = FaultKind::kill;
  int rank = 0;      // Whom it strikes; drop: one end of the link.
  int peer = -1;     // drop: the other end.
  int64_t step = 1;  // Counted from 1. slow: and every later one.
  Phase phase = Phase::backward;
  Milliseconds duration{0};  // stop: until it goes on, 0: never. slow: of each step.
  // Of random: how many faults in steps 2 .. steps, of which kinds.
  uint64_t seed = 1;
  int count = 1;
  int64_t steps = 0;
  std::vector<FaultKind> kinds;

  // As it would be written: "kill:rank=2@step=40,phase=backward". parse_faults() reads it back as
  // it is.
  std::string text() const;
};

// "none" and nothing are none. Throws Error(invalid_argument) naming the fault by its number and
// text, the word, its value, and what fits.
std::vector<Fault> parse_faults(std::string_view text);
std::string to_text(const std::vector<Fault>& faults);
// What a run over `world_size` replicas suffers: each `random` is replaced by its faults, the same
// for the same seed and world size. Throws Error(invalid_argument) naming a rank or step that this
// run does not have; `steps`: of the run, 0: unknown.
std::vector<Fault> schedule_faults(const std::vector<Fault>& faults, int world_size,
                                   int64_t steps = 0);

// Whether `fault` strikes a replica that comes to `phase` of `step` (checkpoint and idle, the end
// of a run: after `step` steps). A rank may pass a phase by (a replica without samples has no
// backward), so a fault strikes at its phase or at the next one of its step; one of the checkpoint
// at the first checkpoint from its step on, one of the end at the end of a run of that many steps
// or more.
bool is_due(const Fault& fault, int rank, Phase phase, int64_t step);

}  // namespace trireme
