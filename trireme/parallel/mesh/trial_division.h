// A rank that measures the blocks of a model alone, although a tensor axis will divide their
// layers.
#pragma once
#include <ATen/core/Tensor.h>
#include <trireme/comm/group.h>
#include <memory>
#include <utility>
#include <vector>

namespace torch::nn {
class Module;
}

namespace trireme {

namespace nn {
class TensorParallelLayer;
}

// While it lives, the layers of the module are those of the first rank of a tensor axis whose
// other ranks do not exist: the divided parameters are hollow and have this rank's sizes, and a
// collective gives tensors of the right form, with values of no meaning. Afterwards parameters and
// layers are as before, but for gradients, which are dropped. With one rank it does nothing.
// Used by one thread. Throws Error(invalid_argument) as nn::divide_layers() does.
class TrialDivision {
 public:
  TrialDivision(torch::nn::Module& module, int ranks);
  ~TrialDivision();
  TrialDivision(const TrialDivision&) = delete;
  TrialDivision& operator=(const TrialDivision&) = delete;

 private:
  void restore();

  std::vector<std::pair<at::Tensor, at::Tensor>> former_;  // The parameters and their data.
  std::vector<std::pair<nn::TensorParallelLayer*, std::shared_ptr<Group>>> layers_;
};

}  // namespace trireme
