// float32 masters of parameters that are kept in 16 bits. Without a master, a small update would
// vanish in the rounding of its sum with a large weight (Micikevicius et al. 2018, "Mixed
// precision training", section 3.1). Reduction and update work on the masters; the model gets
// rounded copies of them.
#pragma once
#include <ATen/core/Tensor.h>
#include <vector>

namespace trireme {

class MasterWeights {
 public:
  // Parameters of bfloat16 and float16 get masters; every other parameter is its own master.
  explicit MasterWeights(const std::vector<at::Tensor>& parameters);
  bool any() const { return any_; }
  // The masters in the order of the parameters, with the same requires_grad.
  const std::vector<at::Tensor>& masters() const { return masters_; }

  // Copies the parameters into their masters, after they were loaded or received.
  void adopt() const;
  // Moves each 16-bit parameter's .grad to its master, as float32.
  void take_gradients() const;
  // Copies the masters into their parameters, rounded.
  void publish() const;

 private:
  std::vector<at::Tensor> parameters_, masters_;
  bool any_ = false;
};

}  // namespace trireme
