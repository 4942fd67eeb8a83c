// An exponential moving average of parameters, which often generalises better than the last ones
// (Polyak, Juditsky 1992; Tan, Le 2019 use 0.9999).
#pragma once
#include <ATen/core/Tensor.h>
#include <vector>

namespace trireme {

class ParameterAverage {
 public:
  // Starts as a copy. Throws Error(invalid_argument) unless decay lies between 0 and 1, both
  // excluded.
  ParameterAverage(double decay, std::vector<at::Tensor> parameters);
  void update()
      const;  // After each step that updated: average = decay average + (1 - decay) parameters.
  void reset() const;  // The averages become the parameters.
  const std::vector<at::Tensor>& averages() const {
    return averages_;
  }  // In the order of the parameters, at least float32.

  // While one lives, the parameters are the averages. Their own memory is left as it is: others may
  // share it.
  class InUse {
   public:
    explicit InUse(const ParameterAverage* average);  // Null: nothing changes.
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
