// Tells, while backward runs, when a parameter's gradient is complete (Li et al. 2020, "PyTorch
// Distributed", section 3.2.3).
#pragma once
#include <ATen/core/Tensor.h>
#include <functional>
#include <memory>
#include <vector>

namespace trireme {

// Used by one thread, the one that calls backward.
class GradientWatch {
 public:
  // `ready(i)` is called for parameters[i], if it needs a gradient, each time its gradient has been
  // accumulated while armed. What it throws comes out of backward().
  GradientWatch(const std::vector<at::Tensor>& parameters, std::function<void(int)> ready);
  ~GradientWatch();  // Graphs that are still alive call nothing any more.
  void arm(bool on);

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace trireme
