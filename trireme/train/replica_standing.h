// The standing of a replica between the generations of its job. It says which state the replica
// has, and what may come next. Pure; no torch. docs/architecture.md has the drawing.
#pragma once
#include <cstdint>
#include <span>
#include <string_view>

namespace trireme {

enum class Standing {
  fresh,          // In no generation, without a state that others could take.
  joining,        // Takes the state of a generation, and has none of its own.
  parted,         // In no generation. Its memory has the state after the last committed step.
  rejoining,      // Takes the newest state of a generation. Its own is put aside until then.
  between_steps,  // Has the state that all replicas of the generation have.
  in_step,        // A step is under way. Its own state is still that before the step.
  going_back,     // Gives up its state for that of the newest checkpoint.
  regrouping,     // All have agreed to leave this generation.
  finished,       // The run is done, and stays here until all have finished.
  torn,           // Its state belongs to no step. It must not continue.
};
constexpr int kStandings = 10;
std::string_view to_string(Standing standing);
// The standings that may follow directly.
std::span<const Standing> next_standings(Standing standing);

// One thread.
class ReplicaStanding {
 public:
  Standing now() const { return standing_; }
  // Throws Error(internal) that names both standings if `next` may not follow.
  void enter(Standing next);
  // Leaves the generation, whatever happened in it: to `parted` with a state, else to `fresh`. A
  // torn replica stays torn.
  void leave();

  // The replica belongs to a generation and has its state.
  bool is_bound() const;
  // Its state is that after the last committed step.
  bool has_state() const;

 private:
  Standing standing_ = Standing::fresh;
};

}  // namespace trireme
