// Everything besides its inputs and parameters that a forward on CPU reads and changes.
#pragma once
#include <ATen/core/Tensor.h>
#include <trireme/tensor/replica_random.h>
#include <array>
#include <vector>

namespace trireme {

// The state at one moment: autocast, random numbers and buffers. Used on the thread that computes.
class ThreadState {
 public:
  // `random`: the thread's random numbers, or null for those of LibTorch's default CPU generator.
  // It copies the buffers.
  ThreadState(ReplicaRandom* random, std::vector<at::Tensor> buffers);

  // Drops the copies of buffers that still have the same values. The others are those that forward
  // changes.
  void forget_what_stayed();

 private:
  friend class ThreadStateAgain;
  struct Autocast {
    bool is_enabled = false;
    at::ScalarType dtype = at::kBFloat16;
  };
  void restore() const;

  ReplicaRandom* random_;
  ReplicaRandom::Mark mark_;
  std::array<Autocast, 2> autocast_;  // On CPU and CUDA.
  bool autocast_caches_ = true;
  std::vector<at::Tensor> buffers_, copies_;
};

// While it lives, the state is that of `before`. Afterwards it is again as it was. Buffers keep
// their versions, so tensors that autograd has saved stay valid.
class ThreadStateAgain {
 public:
  explicit ThreadStateAgain(const ThreadState& before);
  ~ThreadStateAgain();
  ThreadStateAgain(const ThreadStateAgain&) = delete;
  ThreadStateAgain& operator=(const ThreadStateAgain&) = delete;

 private:
  const ThreadState now_;
};

}  // namespace trireme
