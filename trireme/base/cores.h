// The processor cores of this process.
#pragma once

namespace trireme {

int usable_cores();  // The cores that this process may run on; at least 1.

}  // namespace trireme
