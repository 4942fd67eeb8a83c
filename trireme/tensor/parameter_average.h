// An exponential moving average of parameters, which often generalises better than the parameters
// of the last step (Polyak, Juditsky 1992; Tan, Le 2019 use 0.9999).
#pragma once
#include <ATen/core/Tensor.h>
#include <vector>

namespace trireme {

class ParameterAverage {
 public:
  // The averages start as copies of the parameters. Throws Error(invalid_argument)
  // unless 0 < decay < 1.
  ParameterAverage(double decay, std::vector<at::Tensor> parameters);
  // average = decay average + (1 - decay) parameters. Call it after each step that updated.
  void update() const;
  // Copies the parameters into the averages.
  void reset() const;
  // The averages in the order of the parameters, at least float32.
  const std::vector<at::Tensor>& averages() const { return averages_; }
  const std::vector<at::Tensor>& parameters() const { return parameters_; }

  // While an InUse lives, the parameters have the values of the averages, in their own memory. No
  // version changes.
  class InUse {
   public:
    explicit InUse(const ParameterAverage* average);  // With null nothing changes.
    ~InUse();
    InUse(const InUse&) = delete;
    InUse& operator=(const InUse&) = delete;

   private:
    const ParameterAverage* average_;
    std::vector<at::Tensor> own_;
  };

 private:
  double decay_;
  std::vector<at::Tensor> parameters_, averages_;
};

}  // namespace trireme
