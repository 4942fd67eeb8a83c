// Finds tensors that a loop trains and that no engine has, such as a second model whose optimizer
// was not wrapped. Each rank would train its own, and nothing would tell.
//
// Such a tensor is a leaf of autograd that gets a gradient, is then written, and gets a gradient
// again. Inputs whose gradient is taken, and models that are only passed through, are not written.
#pragma once
#include <trireme/parallel/module_state.h>
#include <trireme/parallel/parameter_changes.h>
#include <memory>
#include <vector>

namespace trireme {

// A process has one while an engine of a loop of the user's own lives. The thread that calls
// backward() makes it, and calls everything.
class TrainedApart {
 public:
  static std::shared_ptr<TrainedApart> of_process();
  ~TrainedApart();
  TrainedApart(const TrainedApart&) = delete;

  // These tensors are in an engine.
  void know(const std::vector<NamedTensor>& parameters);
  // Change::trained_apart, if such a tensor was found.
  ParameterChange find_change() const;
  // The end of a step. It listens in the first steps, and in a few out of many, because each
  // operation of a backward that it listens to costs about a microsecond.
  void end_step();

 private:
  struct Impl;
  TrainedApart();
  std::unique_ptr<Impl> impl_;
};

}  // namespace trireme
