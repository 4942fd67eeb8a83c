// Faults that `trireme launch --inject` puts into a loop of the user's own.
#pragma once
#include <trireme/comm/world.h>

namespace trireme {

// From now on the faults of the environment strike where the loop comes to them; a second call
// does nothing. kill, stop and slow can strike. Throws Error(unsupported) that names another
// one, and Error(invalid_argument) for a fault that cannot be read.
void listen_for_faults(World& world);

}  // namespace trireme
