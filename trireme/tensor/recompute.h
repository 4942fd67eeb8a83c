// A part of forward that keeps its inputs alone. Backward runs it again and takes what autograd
// would have saved from that second run: Chen, Xu, Zhang, Guestrin 2016, "Training Deep Nets with
// Sublinear Memory Cost", section 3.
//
// The second run draws the same random numbers and computes under the same autocast. It gives the
// same bits, so the gradients are bit for bit those without recomputation. It leaves no trace:
// random numbers and buffers, such as running statistics, are afterwards as before.
#pragma once
#include <ATen/core/Tensor.h>
#include <trireme/tensor/kept_tensors.h>
#include <functional>
#include <memory>
#include <vector>

namespace trireme {

class ReplicaRandom;

struct RecomputeSetting {
  // A function of its inputs, parameters, buffers and random numbers. It saves the same tensors in
  // the same order whenever these are the same.
  std::function<std::vector<at::Tensor>(const std::vector<at::Tensor>&)> forward;
  // Those that forward may change.
  std::vector<at::Tensor> buffers;
  // The thread's random numbers; null: those of LibTorch's default CPU generator.
  ReplicaRandom* random = nullptr;
};

// Used by one thread. Its graphs may outlive it, but not the random numbers.
class RecomputedBlock {
 public:
  // Sets up what forward needs on the thread that runs it, until the result is released.
  using Surroundings = std::function<std::shared_ptr<void>()>;

  explicit RecomputedBlock(RecomputeSetting setting);

  // Runs forward. Under no_grad that is all. Inputs may have any memory; if forward changes one in
  // place, a copy is kept. `surroundings` is called before the second run.
  //
  // Backward throws Error(invalid_argument) that names the place if other code has changed an
  // input in place since, or if the second run saves other tensors than the first one. It lets
  // errors of forward through. After an error the next backward through the graph runs forward
  // again.
  std::vector<at::Tensor> operator()(const std::vector<at::Tensor>& inputs,
                                     std::shared_ptr<const KeeperSetting> keeper,
                                     const Surroundings& surroundings = {});

 private:
  std::shared_ptr<const RecomputeSetting> setting_;
  // Whether forward changes its inputs in place is known after the first run.
  enum class Inputs { unknown, stay, change } inputs_ = Inputs::unknown;
};

}  // namespace trireme
