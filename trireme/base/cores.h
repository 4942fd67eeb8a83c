// The processor cores of this process.
#pragma once

namespace trireme {

int usable_cores();  // Those it may run on; at least 1.

}  // namespace trireme
