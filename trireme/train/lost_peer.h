// Which errors of a rank of an elastic job are those of a lost peer.
#pragma once
#include <trireme/comm/world.h>
#include <exception>

namespace trireme {

// A member whose generations end by an error so often in a row, without a committed step, gives
// up (docs/membership.md).
inline constexpr int kGenerationsInVain = 20;

// Returns true if the worker must meet the others again after this error; otherwise the run ends.
// An exception that is no Error is the programme's own and ends the run, also if the job has just
// lost a worker. Only one that carries an Error (std::throw_with_nested()) is judged by that.
bool is_of_lost_peer(const std::exception& error, const World& world);

}  // namespace trireme
