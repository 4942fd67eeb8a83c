// Reports, while backward runs, when a parameter's gradient is complete (Li et al. 2020, "PyTorch
// Distributed", section 3.2.3).
#pragma once
#include <ATen/core/Tensor.h>
#include <functional>
#include <memory>
#include <vector>

namespace trireme {

// Only the thread that calls backward uses it.
class GradientWatch {
 public:
  // While the watch is armed, `ready(i)` is called each time the gradient of parameters[i] has
  // been accumulated, if that parameter needs one. Its exceptions come out of backward().
  GradientWatch(const std::vector<at::Tensor>& parameters, std::function<void(int)> ready);
  ~GradientWatch();  // Graphs that are still alive no longer call anything.
  void arm(bool on);

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace trireme
