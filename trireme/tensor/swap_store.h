// Activations in a file, from forward to backward. A thread of the store writes while forward goes
// on, and reads ahead of the order in which backward needs them, the last one first. It follows
// Rhu et al. 2016, "vDNN: Virtualized Deep Neural Networks for Scalable, Memory-Efficient Neural
// Network Design", section 3, with a file in place of host memory.
//
// All activations of the replica have one limit, whether they wait to be written, were read ahead,
// or belong to blocks that do not swap. A storage that was written stays in memory until its room
// is needed: then the storage goes first that backward needs last. A storage that stayed need not
// be read.
#pragma once
#include <trireme/tensor/activation_bytes.h>
#include <trireme/tensor/stored_tensors.h>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace trireme {

struct SwapOptions {
  std::string folder;                      // It exists.
  int64_t least_bytes = kLeastMovedBytes;  // Smaller storages stay in memory.
  // The bytes that activations may take. Forward waits for the store's thread where they would
  // take more. They exceed the limit only by storages that computation uses, or that stay.
  int64_t limit_bytes = 0;
  // [block]: its storages are read back after backward has reached this block, and before if
  // backward waits for one. Further blocks: after it has reached their own.
  std::vector<int> read_from = {};
};

// The speed of a folder's disk, from a test of some megabytes. Throws Error(io).
struct SwapSpeed {
  double out_bytes_per_second = 0, in_bytes_per_second = 0;
};
SwapSpeed measure_swap(const std::string& folder);

// Used by the thread that computes; saved tensors may end on any thread.
class SwapStore : public StoragePlace {
 public:
  // The next put() is saved in a forward of this block. Returns the number of that run.
  virtual int64_t begin_forward(int block) = 0;
  // Backward has reached a run of this block: earlier runs may be read back.
  virtual void begin_backward(int block, int64_t run) = 0;
};

// Makes the place of one replica's activations, with its thread and file, and sets the limit of
// `bytes`. Throws Error(io) if the folder cannot be used. An Error(io) of the thread (disk full)
// is thrown by the put() or get() that comes next, and by all later ones.
std::shared_ptr<SwapStore> make_swap_store(const SwapOptions& options,
                                           std::shared_ptr<ActivationBytes> bytes);

}  // namespace trireme
