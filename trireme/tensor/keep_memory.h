// Keeps memory that was freed with the process. glibc gives large blocks back to the kernel, so
// every training step faults its activations and gradients in anew: about 0.4 ms a MB, often more
// than the exchange between replicas costs.
#pragma once

namespace trireme {

// For the whole process; from then on its resident size stays at its peak. Call it in main(),
// before the first tensor. Returns false where another allocator than glibc's is at work.
// `trireme-worker` does it; a programme of your own may.
bool keep_freed_memory();

}  // namespace trireme
