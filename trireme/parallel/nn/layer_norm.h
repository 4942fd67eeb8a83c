// Layer norm in a sequence-parallel region: each rank normalises its own tokens.
#pragma once
#include <torch/nn/cloneable.h>
#include <torch/nn/pimpl.h>
#include <trireme/parallel/nn/tensor_parallel_layer.h>

namespace trireme::nn {

// torch::nn::LayerNorm over the last dimension, on an input with divided tokens (exchanges.h;
// Korthikanti et al. 2022, section 4.2.2). Weight and bias are replicated. Each rank's gradients
// are those of its tokens alone, so the engine adds them up (ParameterParts::sums_gradients).
class SequenceLayerNormImpl : public torch::nn::Cloneable<SequenceLayerNormImpl>,
                              public TensorParallelLayer {
 public:
  // Throws Error(invalid_argument) unless the width is positive.
  explicit SequenceLayerNormImpl(int64_t width, double epsilon = 1e-5);

  at::Tensor forward(const at::Tensor& x);  // [..., width]
  void reset() override;
  std::vector<ParameterParts> parts(const std::string& layer, int rank, int ranks) const override;

  at::Tensor weight, bias;  // [width]

 private:
  int64_t width_;
  double epsilon_;
};
TORCH_MODULE(SequenceLayerNorm);

}  // namespace trireme::nn
