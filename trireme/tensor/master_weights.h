// float32 masters of parameters that are kept in 16 bits: a small update would vanish in the
// rounding of a sum with a large weight (Micikevicius et al. 2018, "Mixed precision training",
// section 3.1). Reduction and update work on the masters; the model gets their rounded copies.
#pragma once
#include <ATen/core/Tensor.h>
#include <vector>

namespace trireme {

class MasterWeights {
 public:
  // Parameters of bfloat16 and float16 get masters; others are their own.
  explicit MasterWeights(const std::vector<at::Tensor>& parameters);
  bool any() const { return any_; }
  const std::vector<at::Tensor>& masters() const {
    return masters_;
  }  // In the order of the parameters; requires_grad as theirs.

  void adopt()
      const;  // Masters become what the parameters are: after these were loaded or received.
  void take_gradients() const;  // Each 16-bit parameter's .grad moves to its master, as float32.
  void publish() const;         // Parameters become their masters, rounded.

 private:
  std::vector<at::Tensor> parameters_, masters_;
  bool any_ = false;
};

}  // namespace trireme
