// The hash of a model's parameters, wherever they lie.
#pragma once
#include <trireme/comm/group.h>
#include <trireme/parallel/state_view.h>
#include <string>

namespace trireme {

// COLLECTIVE. The hash of the whole parameters (module_state.h, sha256_of). If they are in slices,
// rank 0 puts one after the other together. The same on every rank.
std::string hash_of_parameters(const StateView& state, Group& group);

}  // namespace trireme
