// Keeps freed memory with the process. glibc gives large blocks back to the kernel, so every
// training step takes page faults for its activations and gradients again: about 0.4 ms a MB,
// often more than the exchange between replicas costs.
#pragma once

namespace trireme {

// Changes the whole process: from then on its resident size stays at its peak. Call it in main(),
// before the first tensor; `trireme-worker` does so, and your own programme can. Returns false if
// the process uses another allocator than glibc's.
bool keep_freed_memory();

}  // namespace trireme
