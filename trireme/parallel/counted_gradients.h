// Gradients that all ranks have alike when another backward of the same step begins.
//
// By World::weigh() the weights of all ranks may add up to another number than 1, such as to N for
// a loss that is a sum. What .grad has from the backwards before must not go through the sum over
// the ranks again, because it would be multiplied by that number. So it lies aside while backward
// runs, and is added behind the sum.
#pragma once
#include <ATen/core/Tensor.h>
#include <functional>
#include <memory>
#include <vector>

namespace trireme {

// The thread that calls backward uses it.
class CountedGradients {
 public:
  struct Callbacks {
    // Whether the gradients of the backward that begins will be added up by such weights, and
    // .grad has nothing that only this rank knows.
    std::function<bool()> lie_aside;
    // The factor of what lay aside, asked for when backward has ended. 1: the gradients of all
    // ranks have been added up. Otherwise they will be, and all parts together must be the whole.
    std::function<double()> factor;
  };
  CountedGradients(std::vector<at::Tensor> parameters, Callbacks callbacks);
  ~CountedGradients();
  // From now on gradients lie aside in each backward of this thread. Later calls do nothing.
  // Returns false if the process has an autograd engine of its own (tensor/autograd_engine.h).
  bool begin();

 private:
  struct State;
  std::shared_ptr<State> state_;
  bool has_begun_ = false;
};

}  // namespace trireme
