// The processor cores of this process.
#pragma once

namespace trireme {

// The cores that this process may run on, at least 1. A control group that gives a part of the
// processors' time counts as so many cores, rounded up.
int usable_cores();

}  // namespace trireme
