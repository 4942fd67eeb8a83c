// Activations in a file, from forward to backward. A thread of the store copies while the replica
// computes: out while forward goes on, and back ahead of the order in which backward needs them,
// the last one first. It follows Rhu et al. 2016, "vDNN: Virtualized Deep Neural Networks for
// Scalable, Memory-Efficient Neural Network Design", section 3, with a file in place of host
// memory.
#pragma once
#include <trireme/tensor/activation_bytes.h>
#include <trireme/tensor/stored_tensors.h>
#include <cstdint>
#include <memory>
#include <string>

namespace trireme {

struct SwapOptions {
  std::string folder;                 // It exists.
  int64_t least_bytes = 64 << 10;     // Smaller storages stay in memory.
  int64_t waiting_bytes = 128 << 20;  // Forward waits while more than this waits to be written.
  int64_t ahead_bytes = 128 << 20;    // Backward's reads run ahead by at most this.
};

// The speed of a folder's disk, from a test of some megabytes. Throws Error(io).
struct SwapSpeed {
  double out_bytes_per_second = 0, in_bytes_per_second = 0;
};
SwapSpeed measure_swap(const std::string& folder);

// Makes the place of one replica's activations, with its thread and file. Throws Error(io) if the
// folder cannot be used. An Error(io) of the thread (disk full) is thrown by the put() or get() of
// the replica's thread that comes next, and by all later ones.
std::shared_ptr<StoragePlace> make_swap_store(const SwapOptions& options,
                                              std::shared_ptr<ActivationBytes> bytes);

}  // namespace trireme
