// Everything of a run's state but its tensors, as a rank that has the state tells it to the
// others.
#pragma once
#include <trireme/base/json.h>
#include <trireme/train/saver.h>

namespace trireme {

// All ranks are told this of the state that they take.
Json head_of(const RunState& state, bool from_memory);
Progress progress_in(const Json& head);

// The entries of both.
StateView joined(StateView view, const StateView& more);
// Puts the tensors of single ranks back that this rank kept.
void take_own(const StateView& view, const StateView& own);

}  // namespace trireme
